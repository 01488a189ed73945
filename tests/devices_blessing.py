"""What chapter blessing computes on a second device (`device_checks`)."""

import pytest
import torch
from torch import nn

import device_checks
from leakage.attacks.membership import loss_threshold, posterior
from leakage.data import augmentation, gaussians, membership_splits
from leakage.metrics import scores, trends
from leakage.models import initialisation, mlp
from leakage.runtime import DTYPE
from leakage.studies.blessing import (
    bilevel,
    feature_models,
    halves,
    influence,
    logistic_simulation,
    private_audit,
    purchase_like,
    single_crossing,
    support_vectors,
    tradeoff,
    trajectories,
    width_audit,
)
from leakage.theory.logistic import limits, output_law, prox, threshold_attacks
from leakage.theory.logistic.fixed_point import solve
from leakage.theory.logistic.problem import Setting
from leakage.trainers import criteria, dp_sgd, ensembles, logistic_regression, svm
from leakage.trainers.criteria import Examples
from leakage.trainers.modules import Modules
from leakage.trainers.perceptrons import Perceptrons

ENSEMBLE = bilevel.Bilevel(n=8, d=3, p=12, sigma_beta=3.0)
RECIPE, PRIVATE = ensembles.Recipe(2, 4), dp_sgd.PrivateRecipe(3, 5.0)


class Inputs(device_checks.Inputs):
    """Laws, training sets, networks, and losses of many of them."""

    def __init__(self, device, generator):
        super().__init__(device, generator)
        self.setting = Setting.bilevel(penalty=self.of(0.1, 1), delta=0.5, phi=self.of(3, 5), kappa=self.of(0.5, 5))
        self.solution = solve(self.setting)
        self.law = self.solution.law
        self.one = solve(Setting.bilevel(penalty=self.single, delta=0.5, phi=4.0))
        self.limit = self.one.law
        self.points = bilevel.fixed_points(ENSEMBLE, 2, generator=generator)
        self.labels = self.of(1, 0)
        self.pairs = membership_splits.complementary_pairs(12, 8, generator=generator)
        self.losses = gaussians.chi_square(1.0, (2, 8, 12), generator=generator)
        self.members = self.pairs.member, self.pairs.partner
        self.classes = (self.pool[:, 0] > 0).long()
        self.networks = Perceptrons.of(mlp.initial((4,), (6, 5, 2), generator=generator))
        self.examples = Examples((self.pool,), self.classes)
        self.halves = torch.stack([torch.arange(20, device=device)] * 4)
        self.pooled = dict(features=self.pool, labels=self.classes, pool=20, seed=0)

    def named(self, work):
        """What `work` makes of streams by name, which the pretended device does not have; it draws from the one."""

        def stream(seed, name, device):
            assert torch.device(device) == self.device
            return self.generator

        with pytest.MonkeyPatch.context() as patch:
            for room in (halves, private_audit, width_audit):
                patch.setattr(room, "stream", stream)
            return work()

    def trained(self, optimiser, **settings):
        recipe = ensembles.Recipe(2, 8, optimiser=optimiser, **settings)
        return vars(ensembles.train(self.networks, self.examples, self.halves, recipe, generator=self.generator))

    def fit(self):
        data = bilevel.training_sets(ENSEMBLE, 3, generator=self.generator, points=self.points)
        model = logistic_regression.fit(data.gram(), data.labels, ridge=0.5)
        one = data.cross[..., 0], self.points.squares[0], self.points.labels[0]
        return [
            data,
            vars(model),
            logistic_regression.with_point(model, data.cross, self.points.squares, self.points.labels),
            vars(logistic_regression.train_with_point(model, data.gram(), data.labels, *one)),
            logistic_regression.leave_one_out(model, data.gram(), data.labels),
        ]

    def machines(self):
        gram = self.pool[:5] @ self.pool[:5].mT
        labels = self.of(1, -1, 1, -1, 1)
        found = [svm.hard_margin(gram, labels), svm.soft_margin(gram, labels, box=0.5)]
        return [[vars(machine), machine.distances(gram)] for machine in found]

    def modules(self, route):
        form = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2)).to("meta")
        stack = initialisation.initial(form, 4, generator=self.generator, dtype=DTYPE)
        networks = Modules(form, stack, criterion=criteria.classes, route=route)
        found = ensembles.train(networks, self.examples, self.halves, RECIPE, generator=self.generator)
        seen = trajectories.watch(
            networks,
            self.examples[slice(0, 20)],
            self.examples[slice(20, 30)],
            RECIPE,
            pairs=membership_splits.complementary_pairs(20, 4, generator=self.generator),
            epochs=(0, 2),
            generator=self.generator,
        )
        return [vars(found.stack), found.scores(self.examples), seen.seen, seen[1:]]

    def private(self):
        wide = dp_sgd.for_settings(self.networks, 2)
        batch, labels = self.pool[:20].reshape(4, 5, 6), self.classes[:20].reshape(4, 5)
        trained = dp_sgd.train(
            wide,
            self.examples,
            self.halves,
            PRIVATE,
            noise=self.of(0, 1),
            learning_rate=self.of(0.1, 0.2),
            generator=self.generator,
        )
        return [
            vars(trained),
            vars(trained[:, 1]),
            vars(dp_sgd.clipped_sum(wide, batch, labels, clip=0.5)),
        ]


CHECKS = {
    "prox": lambda x: [
        prox.loss(x.of(1, 2), x.labels),
        prox.prox(x.of(1, 2), x.of(3, 400), x.labels),
        prox.inverse_prox(x.of(1, 2), x.of(3, 400), x.labels),
    ],
    "Setting": lambda x: [
        vars(Setting.panel(lambda_delta=x.of(0.1, 1), phi=3.0)),
    ],
    "solve": lambda x: [x.solution, solve(x.setting, method="fixed point", iterations=2, strict=False)],
    "output_law": lambda x: [
        output_law.densities(x.law, x.of(1, 2, 3), teacher=x.of(0, 1), label=x.labels),
        output_law.sample_attack(x.law, teacher=x.of(0, 1), label=x.labels),
        output_law.exceedance(x.law, x.of(1)),
        *(
            measure(x.law)
            for measure in (
                output_law.average_advantage,
                output_law.generalisation_error,
            )
        ),
    ],
    "threshold_attacks": lambda x: [
        threshold_attacks.threshold_rates(x.law, x.of(0.5)),
        threshold_attacks.best_threshold(x.law),
    ],
    "single_crossing": lambda x: [
        single_crossing.integrated_advantage(x.law, teacher=x.of(0, 1), label=x.labels, nodes=40),
        single_crossing.single_root(x.law, teacher=x.of(0, 1), label=x.labels, nodes=40),
        single_crossing.variation_excess(x.of(0, 1, -1)),
    ],
    "limits": lambda x: [
        limits.infinite_ridge(phi=x.of(2, 3), samples=5.0),
        limits.max_margin(samples=x.of(2, 5)),
        limits.least_gamma(x.setting),
    ],
    "tradeoff": lambda x: x.shortly(
        lambda: [
            vars(curves := tradeoff.trade_off(x.of(3), strongest=10, weakest=0.1, per_decade=2)),
            tradeoff.at_error(curves, 0.2),
            tradeoff.at_advantage(curves, 0.5, past_best=True),
        ],
        tradeoff,
        _ROUNDS=1,
        _SECANTS=2,
    ),
    "logistic_regression": lambda x: x.fit(),
    "bilevel_outputs": lambda x: [
        found := logistic_simulation.point_outputs(
            ENSEMBLE, x.points, penalty=1.0, trials=4, generator=x.generator, refits=2
        ),
        influence.influence(ENSEMBLE, x.points, x.one, penalty=1.0),
        influence.law_distances(found, x.points, influence.law_at(x.limit, found.gamma.mean(1))).refits[0].low,
        logistic_simulation.simulate(
            ENSEMBLE, penalty=1.0, trials=3, generator=x.generator, thresholds=(0.5,), fresh=9
        ),
        logistic_simulation.left_out_check(ENSEMBLE, penalty=1.0, generator=x.generator, refits=2),
    ],
    "svm": lambda x: x.machines(),
    "margin_outputs": lambda x: [
        support_vectors.privacy_and_error(
            name, widths=[4, 12], rows=8, trials=4, fresh=2, generator=x.generator, bin_width=0.5
        )
        for name in feature_models.FEATURE_MODELS
    ],
    "membership_splits": lambda x: [
        vars(x.pairs),
        membership_splits.quarters(12, size=2, generator=x.generator),
    ],
    "purchase_like": lambda x: vars(purchase_like.draw(5, generator=x.generator, features=6, classes=2)),
    "shift_and_flip": lambda x: augmentation.shift_and_flip(
        gaussians.gaussian((2, 3, 1, 4, 4), generator=x.generator), x.generator, pixels=1
    ),
    "ensembles.train": lambda x: [x.trained("adam"), x.trained("sgd", momentum=0.9, weight_decay=0.1)],
    "ensembles.scores": lambda x: [
        x.networks.scores(x.examples),
    ],
    "membership attacks": lambda x: [
        loss_threshold.global_thresholds(x.losses, *x.members),
        *(attack(x.losses, *x.members) for attack in width_audit.ATTACKS.values()),
        posterior.logit(x.losses),
    ],
    "membership rates": lambda x: [
        found := width_audit.audit(x.losses, *x.members, fprs=(0.5,)),
        *scores.rates(x.losses, member=x.pairs.member, fprs=(0.5,)).values(),
        scores.marked(x.losses, member=x.pairs.member).best_advantage(),
        trends.at_crossing(x.of(1, 2, 3), x.of(1, 2, 3), target=1.5),
        trends.pairs_at_crossing(found["lira"].auc, found["lira"].auc, target=0.5),
    ],
    "width_audit": lambda x: x.named(
        lambda: width_audit.width_audit(
            (5, 0), models=6, recipe=RECIPE, epochs=(0, 2), kept=(2,), fprs=(0.5,), **x.pooled
        )
    ),
    "dp_sgd": lambda x: x.private(),
    "private_audit": lambda x: [
        found := x.named(
            lambda: private_audit.private_audit(
                (5, 0), recipe=PRIVATE, models=4, noise=(1.0, 2.0), learning_rates=(0.1,), **x.pooled
            )
        ),
        private_audit.pareto_front(found.error, found.attacks["global"].advantage),
        private_audit.least_error(found.error, found.attacks["global"].advantage, at_most=0.9),
    ],
    "modules": lambda x: [x.modules(route) for route in ("loop", "vmap")],
}
