"""Results live where the inputs live: every function is run on a second device that refuses to meet the CPU.

The device is a pretence (`second_device`), so that a tensor made in the wrong place fails on machines without a GPU.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from leakage.attacks import likelihood_ratio, margin, univariate
from leakage.attacks.gradient_inversion import (
    decompose,
    deep,
    design,
    evaluation,
    matching,
    moments,
    patterns,
    polish,
    recover,
    span,
    tensor,
)
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.data import images, mixtures, synthetic
from leakage.models import clients, convolutional, two_layer
from leakage.models.activations import ACTIVATIONS, activation
from leakage.models.clients import TwoLayer as Client
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE
from leakage.theory import (
    cosine_series,
    gaussian_mixture,
    gaussian_test,
    gradient_symmetries,
    hermite,
    inversion_error,
    latent_space,
    least_squares,
    least_squares_law,
    piecewise_linear,
    relu_features,
    ridge,
    scale_mixture,
)
from leakage.theory.kkt import bounds, conditions, kink_shift, margin_size, optimum, orthogonality, univariate_facts
from leakage.theory.least_squares import Design, Query
from leakage.trainers import federated, margin_flow, module_flow, random_features, regressions
from leakage.trainers.federated import batch_gradient
from leakage.trainers.margin_flow import Recipe

DESIGN = Design(10, 40, 0.7)
WIDTHS = [12, 20, 40]
COSINES = cosine_series.Cosines.released(5, 30, 12)


class Inputs:
    """Arguments on the device under test."""

    def __init__(self, device, generator):
        self.device, self.generator = device, generator
        self.widths, self.single = self.of(*WIDTHS), self.of(12.0)[0]
        self.query = Query(self.of(11.0, 21.0, 38.0), self.of(28.0, 19.0, 1.0))
        self.spectra = ridge.Spectra.draw(DESIGN, 12, self.of(0.1, 2.0), trials=6, generator=generator)
        self.pool = synthetic.gaussian((30, 6), generator=generator)
        self.asked = synthetic.gaussian((2, 5, 3), generator=generator)
        self.laws = scale_mixture.ScaleMixture(self.of(1.0, 2.0), self.of(0.3, 0.7)), self.of(3.0)

    def of(self, *values):
        return torch.tensor([float(value) for value in values], dtype=DTYPE, device=self.device)

    def law(self, *means):
        return gaussian_mixture.GaussianMixture(self.of(*means), self.of(*[1.0] * len(means)))

    def drawn(self, function, p, **options):
        return function(DESIGN, p, query=self.query.at(0), trials=7, generator=self.generator, **options)

    def trained(self, member, **options):
        point = synthetic.gaussian((40,), generator=self.generator)
        return regressions.trained_predictions(
            DESIGN, point, trials=5, member=member, generator=self.generator, **options
        )

    def latent(self, p):
        directions = synthetic.sphere(p, 3, generator=self.generator)
        options = dict(trials=5, generator=self.generator)
        return [
            function(latent_space.LatentSpace(10, 3), self.of(1, 2, 3), directions, **options)
            for function in (latent_space.outsider_variances, latent_space.member_variances)
        ]

    def times(self):
        queries = self.of(3, 9).long()
        return cosine_series.training_times(COSINES, queries, trials=4, aliases=False, generator=self.generator)

    def features(self, member):
        return random_features.label_weights(
            self.pool, 2, rows=8, widths=[6, 8, 20], designs=9, member=member, generator=self.generator
        )

    def network(self):
        return two_layer.initial((2,), 4, 3, generator=self.generator, hidden_scale=0.5)

    def trained_modules(self, route, recipe):
        module = convolutional.Convolutional(3, width=2)
        start = convolutional.initial(module, 2, generator=self.generator)
        points = synthetic.gaussian((2, 4, 9), generator=self.generator)
        labels = self.of(1, -1, 1, -1, 1, 1, -1, -1).reshape(2, 4)
        found = module_flow.train(module, start, points, labels, recipe, route=route)
        return [vars(found), module_flow.outputs(module, found.parameters, points)]

    def kkt(self):
        """A network whose outputs at two points are their labels' signs, its conditions and their geometry."""
        model = TwoLayer(self.of(1, -1, -1, 1).view(2, 2), self.of(0.1, 0.1), self.of(1, -1))
        points = self.of(2, 0, -0.1, 1).view(2, 2)
        return model, conditions.check(model, points, self.of(1, -1)), bounds.Geometry.of(points)

    def moments(self):
        """Moments of a gradient of three inputs, from either layer."""
        weights, inputs = (synthetic.gaussian(size, generator=self.generator) for size in ((60, 4), (3, 4)))
        inner = weights @ inputs.mT
        seen = Observation(weights, activation("tanh"), 0.0, inner.tanh().sum(1), (1 - inner.tanh().square()) @ inputs)
        return moments.of_outputs(seen), moments.of_hidden(seen)

    def client(self, name="tanh", **options):
        """A client, its gradient, and what the server sees; `depth` makes it a stack."""
        kind = clients.DeepStack if "depth" in options else clients.TwoLayer
        module = kind(self.pool, activation=name, bias=1.0, **options)
        gradient = federated.batch_gradient(module, self.pool[:2], self.of(1, -1), loss="mean")
        see = deep.effective_observation if "depth" in options else Observation.from_module
        return gradient, see(module, gradient, batch=2, loss="mean")

    def observation(self, name):
        """A server's view of two inputs with residuals 2 and -1."""
        weights, inputs, residuals = (
            synthetic.gaussian((40, 6), generator=self.generator),
            self.pool[:2],
            self.of(2, -1),
        )
        values, slopes = activation(name).derivatives(weights @ inputs.mT, order=1)
        return Observation(weights, activation(name), 3.0, values @ residuals, (slopes * residuals) @ inputs / 40)

    def inverted(self, name, **options):
        found = tensor.reconstruct(self.observation(name), batch=2, generator=self.generator, **options)
        return [found.inputs, found.residuals, found.labels, *vars(found.terms).values(), found.terms.condition]

    def gradient_of(self, name, *, m=60):
        """What a server sees of two inputs."""
        client = Client(synthetic.gaussian((m, 4), generator=self.generator), activation=name, bias=3.0)
        points = synthetic.sphere(2, 4, generator=self.generator)
        gradient = batch_gradient(client, points, self.of(1, -1), loss="half_sum")
        return Observation.from_module(client, gradient, batch=2, loss="half_sum", activation=name)

    def ramp(self):
        return kink_shift.figure_6(device=self.device)[0]


CHECKS = {
    "gradient_inversion.recover": lambda x: [
        vars(recover.recover(x.gradient_of(name, m=m), batch=2, generator=x.generator, tries=2))
        for name, m in (("tanh", 60), ("gelu", 60), ("gelu", 8), ("gelu", 5))
    ],
    "gradient_inversion.recover from outputs": lambda x: vars(
        recover.recover(
            Observation((seen := x.gradient_of("tanh")).weights, seen.activation, seen.bias, outputs=seen.outputs),
            batch=2,
            generator=x.generator,
        )
    ),
    "gradient_inversion.polish": lambda x: vars(
        polish.polish(
            polish.HiddenEquations.of(x.gradient_of("gelu"), x.pool[:4, :2]), x.asked[:, :2, :2], norm=1.0, steps=5
        )
    ),
    "gradient_inversion.patterns": lambda x: vars(
        patterns.decode(x.gradient_of("relu"), batch=2, generator=x.generator)
    ),
    "chi_square": lambda x: [
        synthetic.chi_square(dof, (3, 2), generator=x.generator) for dof in (0, 2.5, [0, 3], x.of(0, 3), torch.ones(2))
    ],
    "sphere": lambda x: synthetic.sphere(3, 4, generator=x.generator),
    "standardised": lambda x: synthetic.standardised(x.pool),
    "gaussian_twin": lambda x: synthetic.gaussian_twin(x.pool, 4, generator=x.generator),
    "gaussian_test": lambda x: [
        function(x.of(1, 2, 3), x.of(2, 2, float("inf")))
        for function in (gaussian_test.advantage, gaussian_test.threshold)
    ],
    "gaussian_test.power": lambda x: gaussian_test.power(x.of(1, 2), x.of(2, 1), fpr=0.1),
    "scale_mixture.total_variation": lambda x: scale_mixture.total_variation(*x.laws),
    "scale_mixture.thresholds": lambda x: scale_mixture.thresholds(*x.laws),
    "scale_mixture.rule_advantage": lambda x: scale_mixture.rule_advantage(*x.laws, x.of(1, 2)),
    "scale_mixture.power": lambda x: scale_mixture.power(*x.laws, fpr=0.1, cells=50),
    "ScaleMixture.sample": lambda x: x.laws[0].sample(4, generator=x.generator),
    "gaussian_mixture": lambda x: gaussian_mixture.total_variation(x.law(0, 1), x.law(2, 0, 5)),
    "Design.widths": lambda x: [DESIGN.widths(x.widths), DESIGN.widths(WIDTHS, device=x.device)],
    "Query.typical": lambda x: vars(Query.typical(DESIGN, x.widths)),
    "Query.of": lambda x: vars(Query.of(synthetic.gaussian((3, 40), generator=x.generator), DESIGN, 12)),
    "Query.draw": lambda x: vars(Query.draw(DESIGN, WIDTHS, count=5, generator=x.generator)),
    "outsider_variance": lambda x: [
        least_squares.outsider_variance(DESIGN, p, x.query) for p in (x.widths, torch.tensor(WIDTHS))
    ],
    "member_variance": lambda x: least_squares.member_variance(DESIGN, x.query),
    "advantage": lambda x: least_squares.advantage(DESIGN, x.widths, x.query),
    "prediction_error": lambda x: least_squares.prediction_error(DESIGN, x.widths),
    "noise_for_error": lambda x: least_squares.noise_for_error(DESIGN, x.of(5, 6)),
    "noise_advantage": lambda x: least_squares.noise_advantage(DESIGN, x.of(0, 1, 2), x.query, on_members=True),
    "least_squares_law.sample_outsider": lambda x: [
        x.drawn(least_squares_law.sample_outsider, p) for p in (4, 9, 10, 11, 12, 40)
    ],
    "least_squares_law.sample_member": lambda x: [x.drawn(least_squares_law.sample_member, p) for p in (4, 9, 10, 40)],
    "least_squares_law.outsider_mixture": lambda x: [
        vars(least_squares_law.outsider_mixture(DESIGN, p, x.query.at(0))) for p in (4, 10, 11, 40)
    ],
    "least_squares_law.total_variations": lambda x: least_squares_law.total_variations(
        DESIGN, WIDTHS, x.query, nodes=(6, 16, 2)
    ),
    "ridge.sample_outsider": lambda x: x.drawn(ridge.sample_outsider, 12, penalty=0.3),
    "ridge.sample_member": lambda x: x.drawn(ridge.sample_member, 12, penalty=0.3),
    "ridge.Spectra": lambda x: scale_mixture.total_variation(
        x.spectra.outsider_mixture(x.query), x.spectra.member_mixture(x.query)
    ),
    "ridge.Spectra with penalties of the CPU": lambda x: vars(
        ridge.Spectra.draw(DESIGN, 12, torch.tensor([0.1, 2.0]), trials=3, generator=x.generator)
    ),
    "limit_variances": lambda x: [
        ridge.limit_variances(DESIGN, p, penalty, x.query)
        for p in (x.widths, torch.tensor(WIDTHS))
        for penalty in (x.of(0, 0.2, 0.3), torch.tensor([0.0, 0.2, 0.3]))
    ],
    "variance_ratio": lambda x: ridge.variance_ratio(
        ridge.shrinkage(x.of(0.5, 3), x.of(3)), x.of(3), x.of(30), sigma=1.0
    ),
    "silent_penalty": lambda x: ridge.silent_penalty(x.of(0.5, 3), x.of(30), sigma=1.0),
    "latent_space": lambda x: [x.latent(p) for p in (4, 10, 40)],
    "relu_features": lambda x: [
        function(DESIGN, x.of(30, 50), widths=[5, 20], trials=6, generator=x.generator)
        for function in (relu_features.outsider_variances, relu_features.member_variances)
    ],
    "cosine_series": lambda x: [
        cosine_series.outsider_variances(COSINES, x.times(), x.of(3, 9).long()),
        cosine_series.exact_outsider_variances(COSINES, x.times(), x.of(3, 9).long()),
        vars(cosine_series.with_aliases(COSINES, x.of(3, 9).long(), x.of(0.1, 0.2).unsqueeze(-1))),
    ],
    "trained_predictions": lambda x: [x.trained(member, widths=[4, 10, 20]) for member in (True, False)],
    "trained_predictions with penalties": lambda x: x.trained(True, widths=[20], penalties=[0.1, 1.0]),
    "teacher_variances": lambda x: random_features.teacher_variances(x.features(True), x.pool, sigma=0.5),
    "label_noise_law": lambda x: random_features.label_noise_law(x.features(False), x.pool[:, 0], sigma=0.5),
    "likelihood_ratio.score": lambda x: likelihood_ratio.score(
        x.of(1, 2), x.laws[0], scale_mixture.ScaleMixture(x.laws[1])
    ),
    "likelihood_ratio.gaussian_score": lambda x: likelihood_ratio.gaussian_score(x.of(1, 2), x.of(1, 2), x.of(2)),
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
        vars(margin_flow.train(x.network(), x.asked, x.asked[..., 0].sign(), recipe, snapshots=[0, 3], route=route))
        for recipe in (Recipe(5, 0.1), Recipe(5, margin=0.5))
        for route in ("dual", "primal")
    ],
    "module_flow.train": lambda x: [
        x.trained_modules(route, recipe)
        for route in ("loop", "vmap")
        for recipe in (Recipe(2), Recipe(2, learning_rate=0.1))
    ],
    "attacks.margin": lambda x: [
        *margin.margin_of(x.asked[..., 0]),
        *(rule(x.asked[..., 0], x.of(1, 2)) for rule in (margin.share_on, margin.share_above, margin.known_margin)),
        margin.near_margin(x.asked[..., 0], x.of(1, 2)),
        margin.bounded_margin(x.asked, least=0.5),
        *margin.leaked_point(margin.line_ups(x.asked[..., 0], x.asked[..., 1], size=3)),
        margin.shadow_margin(x.of(1, 2, 3)),
        margin.distance_score(x.asked[..., 0], x.of(1, 2), labels=x.asked[..., 1].sign()),
        margin.loss_score(x.asked[..., 0], labels=x.asked[..., 1].sign()),
    ],
    "attacks.univariate": lambda x: [
        *(
            univariate.candidates_from_weights(x.ramp(), 1.0, low=-9, high=9, algorithm=a)
            for a in univariate.ALGORITHMS
        ),
        univariate.from_ratio(optimum.single(x.of(2, 3), label=1)[0]),
        univariate.from_crossing(optimum.single(x.of(2, 3), label=1)[0], 1.0),
    ],
    "gradient_inversion.decompose": lambda x: [
        vars(
            decompose.decompose(
                decompose.assemble(x.asked[0, :3], x.of(1, 2, -1), order=order),
                order=order,
                method=method,
                contractions=count,
                generator=x.generator,
            )
        )
        for order, method, count in (
            *((order, "joint", count) for order in (3, 4) for count in (9, None)),
            *((3, method, None) for method in decompose.METHODS),
        )
    ],
    "gradient_inversion.tensor": lambda x: [
        x.inverted(name, source=source, contraction=contraction)
        for name, source, contraction in (
            ("tanh", "outputs", "none"),
            ("tanh", "hidden", "random"),
            ("gelu", "span", "none"),
            ("gelu", "span", "ones"),
        )
    ],
    "piecewise_linear": lambda x: [
        vars(function := piecewise_linear.from_network(x.ramp())),
        vars(piecewise_linear.simplify(function, low=-3, high=9, tolerance=0.1)),
        vars(piecewise_linear.Margins.of(function, 1.0, tolerance=0.1)),
    ],
    "kkt.optimum": lambda x: [
        *(
            vars(optimum.univariate(*optimum.draw_problem(law, count=6, generator=x.generator)).model)
            for law in optimum.LABEL_LAWS
        ),
        optimum.orthant(x.pool[:3], x.of(1, -1, 1)).multipliers,
    ],
    "kkt.kink_shift": lambda x: [
        vars(kink_shift.shifted(x.ramp(), step=0.1)),
        kink_shift.norm_derivative(x.ramp()),
    ],
    "kkt.univariate_facts": lambda x: [
        univariate_facts.marginal(x.of(1, 2), x.of(0, 1)),
        univariate_facts.kink_of_sum(x.pool[:, :2], x.pool[:, 2:4]),
        x.of(*univariate_facts.kinks_in_gaps(x.ramp(), x.of(-2, -1, 1, 2))),
        x.of(len(univariate_facts.free_runs(piecewise_linear.from_network(x.ramp()), 0.5, x.of(-2, 1, 2)))),
    ],
    "activations": lambda x: [sigma.derivatives(x.of(-1, 2), order=4) for sigma in ACTIVATIONS.values()],
    "gradient_inversion.Observation": lambda x: [
        x.client()[0],
        vars(seen := x.client()[1]),
        seen.labels(x.pool[:2], x.of(1, 2)),
    ],
    "gradient_inversion.deep": lambda x: [
        vars(x.client("sigmoid", depth=3)[1]),
        deep.inputs_from(x.of(0.1, 2).view(1, 2), activation("sigmoid"), depth=3, kind="paired"),
        deep.inputs_along(x.of(0.1, 2).view(1, 2), activation("sigmoid"), depth=2, kind="paired"),
    ],
    "gradient_inversion.design": lambda x: [
        design.draw(kind, m=8, d=3, generator=x.generator) for kind in design.KINDS
    ],
    "gradient_inversion.matching": lambda x: [
        vars(matching.match(x.client()[1], batch=2, scale=0.4, generator=x.generator, distance=way, iterations=3))
        for way in matching.DISTANCES
    ],
    "gradient_inversion.evaluation": lambda x: [
        evaluation.matched(x.pool[:3], x.pool[1:4], signs=signs) for signs in (True, False)
    ],
    "gradient_symmetries": lambda x: [
        gradient_symmetries.mirrored(x.pool[:2], x.of(1, 2), activation("tanh"), flips=x.of(1, 0) > 0),
        gradient_symmetries.rescaled(x.pool[:2], x.of(1, 2), activation("relu"), factors=x.of(1, 2)),
        gradient_symmetries.rotated(x.pool[:2], x.of(1, -2), activation("quadratic"), angle=0.3),
        gradient_symmetries.displaced(x.pool[:2], x.of(1, -2), activation("linear"), shift=x.pool[0]),
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
    "gradient_inversion.moments": lambda x: (
        [
            [found.first(), found.second(basis), found.third(basis, basis[:, 0])]
            + [function(basis, order=order) for function in (found.tensor, found.regressed) for order in (3, 4)]
            for found in x.moments()
            for basis in [x.of(*range(8)).view(4, 2)]
        ]
        + [x.moments()[1].one_sided(x.of(*range(8)).view(4, 2))]
    ),
    "gradient_inversion.span": lambda x: [
        (first := span.of_moments(x.moments()[1], batch=2, order=3, generator=x.generator)).basis,
        span.sharpened(x.moments()[1], first).basis,
        *(span.of_rows(x.moments()[1].rows, batch=batch, generator=x.generator).basis for batch in (None, 2)),
    ],
    "hermite": lambda x: [
        hermite.hermite_tensor(x.pool, order=3),
        hermite.moment(activation("relu"), x.of(1, 2), order=3),
        hermite.gaussian_mean(torch.tanh, device=x.device),
    ],
    "inversion_error": lambda x: [
        inversion_error.error(x.of(1)),
        inversion_error.span_error(x.of(*range(8)).view(4, 2), x.pool[:, :4]),
        inversion_error.outputs_tilt(activation("elu"), x.of(10), x.of(99), batch=2, centre=True, noise=0.1),
        inversion_error.hidden_tilt(activation("elu"), x.of(10), x.of(99), batch=2, centre=True),
        inversion_error.contracted_tilt(activation("tanh"), x.of(10), x.of(99), batch=2, centre=True),
    ],
    "kkt.margin_size": lambda x: [
        margin_size.least_margin(x.of(0.1)),
        margin_size.printed_gradient_factor(x.of(1)),
        margin_size.gradient_exponent(x.of(9)),
    ],
}
# Mistakes that must be noticed, or nothing above means anything.
PLANTED = {
    "a constant of the CPU": lambda x: x.single + torch.ones(2, dtype=DTYPE),
    "a result on the CPU": lambda x: x.single.cpu(),
    "an index of the CPU": lambda x: torch.where(torch.tensor([True, False]), x.of(1, 2), 0.0),
}


def report():
    """Run everything on the second device and print what is wrong with each, or nothing, by name."""
    import second_device  # in a process of its own: see there

    generator = second_device.RemoteGenerator().manual_seed(0)
    with second_device.SecondDevice():
        inputs = Inputs(second_device.DEVICE, generator)
        faults = {name: fault(check, inputs, second_device) for name, check in (CHECKS | PLANTED).items()}
    print(json.dumps(faults))


def fault(check, inputs, second_device):
    try:
        result = check(inputs)
    except RuntimeError as error:
        return str(error)
    leaves = [leaf for leaf in second_device.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return "" if leaves and all(isinstance(leaf, second_device.Remote) for leaf in leaves) else "a result on the CPU"


@pytest.fixture(scope="module")
def faults():
    program = [sys.executable, "-c", "import test_devices; test_devices.report()"]
    run = subprocess.run(program, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CHECKS)
def test_everything_stays_on_the_device_it_is_given(faults, name):
    assert not faults[name]


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_gpu_would_refuse_is_noticed(faults, name):
    assert "CPU" in faults[name]
