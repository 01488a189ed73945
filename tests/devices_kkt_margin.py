"""What chapter kkt_margin computes on a second device (`device_checks`)."""

import device_checks
from leakage.attacks import line_reconstruction
from leakage.attacks.membership import margin
from leakage.data import gaussians, images, mixtures
from leakage.models import convolutional, two_layer
from leakage.models.two_layer import TwoLayer
from leakage.studies.kkt_margin import (
    gaussian_networks,
    kink_shift,
    line_problems,
    line_statements,
    margin_size,
    orthogonality,
)
from leakage.theory import piecewise_linear
from leakage.theory.kkt import bounds, conditions, optimum
from leakage.trainers import margin_flow, module_flow
from leakage.trainers.margin_flow import Descent


class Inputs(device_checks.Inputs):
    """Networks of one input and of many, trained and untrained."""

    def network(self):
        return two_layer.initial((2,), 4, 3, generator=self.generator, hidden_scale=0.5)

    def trained_modules(self, route, descent):
        module = convolutional.Convolutional(3, width=2)
        start = convolutional.initial(module, 2, generator=self.generator)
        points = gaussians.gaussian((2, 4, 9), generator=self.generator)
        labels = self.of(1, -1, 1, -1, 1, 1, -1, -1).reshape(2, 4)
        found = module_flow.train(module, start, points, labels, descent, route=route)
        return [vars(found), module_flow.outputs(module, found.model, points)]

    def kkt(self):
        """A network whose outputs at two points are their labels' signs, its conditions and their geometry."""
        model = TwoLayer(self.of(1, -1, -1, 1).view(2, 2), self.of(0.1, 0.1), self.of(1, -1))
        points = self.of(2, 0, -0.1, 1).view(2, 2)
        return model, conditions.check(model, points, self.of(1, -1)), bounds.Geometry.of(points)

    def ramp(self):
        return kink_shift.figure_6(device=self.device)[0]


CHECKS = {
    "mixtures.draw": lambda x: [
        vars(mixtures.draw(law, rows=3, fresh=2, dimension=d, runs=2, generator=x.generator))
        for law in mixtures.LAWS
        for d in (2, 9)
    ],
    "images": lambda x: [
        images.resize(x.of(*range(16)).reshape(1, 4, 4), side=3),
        images.parity(x.of(3, 4).long()),
        vars(images.balanced_split(x.of(1, 1, -1, -1, 1), rows_per_class=1, fresh=2, runs=3, generator=x.generator)),
    ],
    "TwoLayer": lambda x: [
        (network := x.network())(x.asked, generator=x.generator, spread=x.asked[..., 0].abs()),
        network(x.asked),
        network.squared_norm(),
        two_layer.cosine(network, network),
    ],
    "margin_flow.train": lambda x: [
        vars(margin_flow.train(x.network(), x.asked, x.asked[..., 0].sign(), descent, snapshots=[0, 3], route=route))
        for descent in (Descent(5, 0.1), Descent(5, margin=0.5))
        for route in ("dual", "primal")
    ],
    "module_flow.train": lambda x: [
        x.trained_modules(route, descent)
        for route in ("loop", "vmap")
        for descent in (Descent(2), Descent(2, learning_rate=0.1))
    ],
    "attacks.membership.margin": lambda x: [
        *margin.margin_of(x.asked[..., 0]),
        *(rule(x.asked[..., 0], x.of(1, 2)) for rule in (margin.share_on, margin.share_above, margin.known_margin)),
        *margin.leaked_point(gaussian_networks.line_ups(member=x.asked[..., 0], outsider=x.asked[..., 1], size=3)),
        margin.shadow_margin(x.of(1, 2, 3)),
        margin.distance_score(x.asked[..., 0], x.of(1, 2), labels=x.asked[..., 1].sign()),
        margin.loss_score(x.asked[..., 0], labels=x.asked[..., 1].sign()),
    ],
    "attacks.line_reconstruction": lambda x: [
        *(
            line_reconstruction.candidates_from_weights(x.ramp(), 1.0, low=-9, high=9, algorithm=a)
            for a in line_reconstruction.ALGORITHMS
        ),
        line_reconstruction.from_ratio(optimum.single(x.of(2, 3), label=1)[0]),
        line_reconstruction.from_crossing(optimum.single(x.of(2, 3), label=1)[0], 1.0),
    ],
    "piecewise_linear": lambda x: [
        vars(function := piecewise_linear.from_network(x.ramp())),
        vars(piecewise_linear.simplify(function, low=-3, high=9, tolerance=0.1)),
        vars(piecewise_linear.Margins.of(function, 1.0, tolerance=0.1)),
    ],
    "kkt.optimum": lambda x: [
        *(
            vars(optimum.univariate(*line_problems.draw_problem(law, count=6, generator=x.generator)).model)
            for law in line_problems.LABEL_LAWS
        ),
        optimum.orthant(x.pool[:3], x.of(1, -1, 1)).multipliers,
    ],
    "kkt.kink_shift": lambda x: [
        vars(kink_shift.shifted(x.ramp(), step=0.1)),
        kink_shift.norm_derivative(x.ramp()),
    ],
    "kkt.univariate_facts": lambda x: [
        line_statements.marginal(x.of(1, 2), x.of(0, 1)),
        line_statements.kink_of_sum(x.pool[:, :2], x.pool[:, 2:4]),
        x.of(*line_statements.kinks_in_gaps(x.ramp(), x.of(-2, -1, 1, 2))),
        x.of(len(line_statements.free_runs(piecewise_linear.from_network(x.ramp()), 0.5, x.of(-2, 1, 2)))),
    ],
    "kkt.conditions": lambda x: vars(x.kkt()[1]),
    "kkt.bounds": lambda x: [
        bounds.activation_sums(*x.kkt()[:2]),
        bounds.activation_ceiling(x.kkt()[2], x.single),
        bounds.activation_floor(x.kkt()[2], x.single),
        bounds.output_bound(x.kkt()[2], x.kkt()[2].delta_x(x.of(1, 2).view(1, 2)), x.single),
    ],
    "kkt.orthogonality": lambda x: [
        vars(orthogonality.staircase("mixture", rows=4, dimensions=[3, 50], runs=2, fresh=3, generator=x.generator))[
            part
        ]
        for part in ("ratios", "shares")
    ],
    "kkt.margin_size": lambda x: [
        margin_size.least_margin(x.of(0.1)),
        margin_size.printed_gradient_factor(x.of(1)),
        margin_size.gradient_exponent(x.of(9)),
    ],
}
