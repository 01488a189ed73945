"""What chapter min_norm computes on a second device (`device_checks`)."""

import torch

import device_checks
from leakage.attacks.membership import known_laws
from leakage.data import gaussians
from leakage.studies.min_norm import cosine_regression, latent_space, random_features, regressions, relu_features
from leakage.theory import (
    gaussian_mixture,
    least_squares,
    least_squares_law,
    ridge,
    ridge_law,
    scale_mixture,
    two_gaussians,
)
from leakage.theory.least_squares import Design, Query

DESIGN = Design(10, 40, 0.7)
WIDTHS = [12, 20, 40]
COSINES = cosine_regression.Cosines.released(5, 30, 12)


class Inputs(device_checks.Inputs):
    """Queries, spectra and laws."""

    def __init__(self, device, generator):
        super().__init__(device, generator)
        self.widths = self.of(*WIDTHS)
        self.query = Query(self.of(11.0, 21.0, 38.0), self.of(28.0, 19.0, 1.0))
        self.spectra = ridge_law.Spectra.draw(DESIGN, 12, self.of(0.1, 2.0), trials=6, generator=generator)
        self.laws = {
            "outsider": scale_mixture.ScaleMixture(self.of(1.0, 2.0), self.of(0.3, 0.7)),
            "member": self.of(3.0),
        }

    def law(self, *means):
        return gaussian_mixture.GaussianMixture(self.of(*means), self.of(*[1.0] * len(means)))

    def drawn(self, function, p, **options):
        return function(DESIGN, p, query=self.query.at(0), trials=7, generator=self.generator, **options)

    def trained(self, member, **options):
        point = gaussians.gaussian((40,), generator=self.generator)
        return regressions.trained_predictions(
            DESIGN, point, trials=5, member=member, generator=self.generator, **options
        )

    def latent(self, p):
        directions = gaussians.sphere(p, 3, generator=self.generator)
        options = dict(trials=5, generator=self.generator)
        return [
            function(latent_space.LatentSpace(10, 3), self.of(1, 2, 3), directions, **options)
            for function in (latent_space.outsider_variances, latent_space.member_variances)
        ]

    def times(self):
        queries = self.of(3, 9).long()
        return cosine_regression.training_times(COSINES, queries, trials=4, aliases=False, generator=self.generator)

    def features(self, member):
        return random_features.label_weights(
            self.pool, 2, rows=8, widths=[6, 8, 20], designs=9, member=member, generator=self.generator
        )


CHECKS = {
    "chi_square": lambda x: [
        gaussians.chi_square(dof, (3, 2), generator=x.generator) for dof in (0, 2.5, x.of(0, 3), torch.ones(2))
    ],
    "sphere": lambda x: gaussians.sphere(3, 4, generator=x.generator),
    "standardised": lambda x: gaussians.standardised(x.pool),
    "gaussian_twin": lambda x: gaussians.gaussian_twin(x.pool, 4, generator=x.generator),
    "gaussian_test": lambda x: [
        function(outsider=x.of(1, 2, 3), member=x.of(2, 2, float("inf")))
        for function in (two_gaussians.advantage, two_gaussians.threshold)
    ],
    "gaussian_test.power": lambda x: two_gaussians.power(outsider=x.of(1, 2), member=x.of(2, 1), fpr=0.1),
    "scale_mixture.total_variation": lambda x: scale_mixture.total_variation(**x.laws),
    "scale_mixture.thresholds": lambda x: scale_mixture.thresholds(**x.laws),
    "scale_mixture.rule_advantage": lambda x: scale_mixture.rule_advantage(x.of(1, 2), **x.laws),
    "scale_mixture.power": lambda x: x.shortly(
        lambda: scale_mixture.power(**x.laws, fpr=0.1), scale_mixture, _CELLS=50
    ),
    "ScaleMixture.sample": lambda x: x.laws["outsider"].sample(4, generator=x.generator),
    "gaussian_mixture": lambda x: gaussian_mixture.total_variation(outsider=x.law(0, 1), member=x.law(2, 0, 5)),
    "Design.widths": lambda x: [DESIGN.widths(x.widths), DESIGN.widths(WIDTHS, device=x.device)],
    "Query.typical": lambda x: vars(Query.typical(DESIGN, x.widths)),
    "Query.of": lambda x: vars(Query.of(gaussians.gaussian((3, 40), generator=x.generator), DESIGN, 12)),
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
    "ridge_law.sample_outsider": lambda x: x.drawn(ridge_law.sample_outsider, 12, penalty=0.3),
    "ridge_law.sample_member": lambda x: x.drawn(ridge_law.sample_member, 12, penalty=0.3),
    "ridge_law.Spectra": lambda x: scale_mixture.total_variation(**x.spectra.laws(x.query)),
    "ridge_law.Spectra with penalties of the CPU": lambda x: vars(
        ridge_law.Spectra.draw(DESIGN, 12, torch.tensor([0.1, 2.0]), trials=3, generator=x.generator)
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
        cosine_regression.outsider_variances(COSINES, x.times(), x.of(3, 9).long()),
        cosine_regression.exact_outsider_variances(COSINES, x.times(), x.of(3, 9).long()),
        vars(cosine_regression.with_aliases(COSINES, x.of(3, 9).long(), x.of(0.1, 0.2).unsqueeze(-1))),
    ],
    "trained_predictions": lambda x: [x.trained(member, widths=[4, 10, 20]) for member in (True, False)],
    "trained_predictions with penalties": lambda x: x.trained(True, widths=[20], penalties=[0.1, 1.0]),
    "teacher_variances": lambda x: random_features.teacher_variances(x.features(True), x.pool, sigma=0.5),
    "label_noise_law": lambda x: random_features.label_noise_law(x.features(False), x.pool[:, 0], sigma=0.5),
    "known_laws.score": lambda x: known_laws.score(
        x.of(1, 2), outsider=x.laws["outsider"], member=scale_mixture.ScaleMixture(x.laws["member"])
    ),
}
