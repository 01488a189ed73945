r"""What the last percent of accuracy costs in privacy: gradient flow that stops before its error is least.

Linear models of fixed features follow the gradient flow of the squared loss from 0, on random halves of a pool. Along
an eigenvector of the covariance with eigenvalue $\lambda$ the flow has covered the share $1 - e^{-\lambda t}$ of its
way at time t, so that one decomposition gives a model at every time. The attacker knows the record, its label and the
law of the answer at it, a Gaussian with the record and another without it, from trainings of its own. Near its least
the error is flat and the advantage is not, so the advantage falls like the root of the excess error.

Sources: Ali, Kolter and Tibshirani (2019) for the flow, arXiv 1810.10082; Tan et al. (2022), arXiv 2205.14055v1, for
stopping early as a defence.
"""

from typing import NamedTuple

import sklearn.datasets
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.data.tabular import load_breast_cancer, load_digits
from leakage.draws import gaussian, permutation
from leakage.precision import DTYPE

EXCESS = 0.02
"""By what share the error is above its least one where training stops."""
TIMES = torch.logspace(-1, 3, 81, dtype=DTYPE)
"""Times at which a flow may stop; features have variance 1, so that the eigenvalues have mean 1."""
_ROWS = 600  # of a pool; each half has as many rows as half of the ReLU features
_RELU = 600
_EXACT = 1e-24  # variance of answers that fit every label, up to rounding


class Regression(NamedTuple):
    """Features and a label of each row, with mean 0 and variance 1 over the rows; constant features are 0."""

    features: Float[Tensor, "rows features"]
    labels: Float[Tensor, " rows"]


class StoppedFlow(NamedTuple):
    """Error and success of the attack along the flow.

    Attributes:
        error: squared error at rows that were not trained on, mean over the attacker's trainings; 1 for the answer 0.
        advantage: of the attack on each target, over its rows.
        best: which time has the least error.
        early: the last time before it at which the error is at least `EXCESS` above the least one.
    """

    error: Float[Tensor, " times"]
    advantage: Float[Tensor, "targets times"]
    best: int
    early: int

    @property
    def drop(self) -> Float[Tensor, " targets"]:
        """By how much the advantage on each target is lower where training stops early."""
        return self.advantage[:, self.best] - self.advantage[:, self.early]


def embedded_regressions(*, generator: torch.Generator) -> dict[str, Regression]:
    """Four regressions on sets that are part of scikit-learn: parity of digits (twice), tumours and diabetes."""
    digits, tumours = load_digits(), load_breast_cancer()
    chosen = permutation(len(digits), generator=generator)[:_ROWS]
    pixels, parity = digits.features[chosen], digits.labels[chosen] % 2
    relu = (_standardised(pixels) @ gaussian((pixels.shape[-1], _RELU), generator=generator)).relu()
    patients, progress = map(torch.from_numpy, sklearn.datasets.load_diabetes(return_X_y=True))
    sets = {
        "digits, ReLU features": (relu, parity),
        "digits, pixels": (pixels, parity),
        "breast cancer": (tumours.features, tumours.labels),
        "diabetes": (patients, progress),
    }
    return {name: Regression(_standardised(x), _standardised(y.to(DTYPE))) for name, (x, y) in sets.items()}


def stop_early(data: Regression, *, shadows: int, targets: int, generator: torch.Generator) -> StoppedFlow:
    """Train on random halves and attack each target at every time, by the Gaussians that the shadow trainings show."""
    sums = torch.zeros(2, 3, len(TIMES), len(data.labels), dtype=DTYPE)  # with the row or without; powers of the miss
    error = torch.zeros_like(TIMES)
    for _ in range(shadows):
        member = draw_half(data, generator)
        misses = flow_answers(data, member, TIMES) - data.labels
        error += misses[:, ~member].square().mean(-1) / shadows
        powers = torch.stack([torch.ones_like(misses), misses, misses.square()])
        sums[0] += powers * member
        sums[1] += powers * ~member
    mean = sums[:, 1] / sums[:, 0]
    variance = (sums[:, 2] / sums[:, 0] - mean.square()).clamp_min(_EXACT)
    advantage = []
    for _ in range(targets):
        member = draw_half(data, generator)
        misses = flow_answers(data, member, TIMES) - data.labels
        likelihood = -(misses - mean).square() / variance - variance.log()
        says = (likelihood[0] > likelihood[1]).to(DTYPE)
        advantage.append(says[:, member].mean(-1) - says[:, ~member].mean(-1))
    best = int(error.argmin())
    early = int((error[:best] >= (1 + EXCESS) * error[best]).nonzero().max())
    return StoppedFlow(error, torch.stack(advantage), best, early)


def draw_half(data: Regression, generator: torch.Generator) -> Bool[Tensor, " rows"]:
    """Which rows are in a random half."""
    rows = len(data.labels)
    return permutation(rows, generator=generator) < rows // 2


def flow_answers(
    data: Regression, member: Bool[Tensor, " rows"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times rows"]:
    r"""Answers at all rows of the flow $\dot w = X^\top (y - X w) / n$ from 0 on the members, at each time.

    $w(t) = \sum_k v_k \frac{1 - e^{-\lambda_k t}}{\lambda_k} v_k^\top X^\top y / n$ with the eigenvectors of
    $X^\top X / n$, or the same through those of $X X^\top / n$ if there are fewer rows than features.
    """
    x, y = data.features[member], data.labels[member]
    few = x.shape[0] < x.shape[1]
    values, vectors = torch.linalg.eigh((x @ x.mT if few else x.mT @ x) / len(x))
    towards = (y if few else x.mT @ y) @ vectors / len(x)
    span = times[:, None] * values.clamp_min(1e-12)  # of an eigenvalue 0 the limit is t
    weights = times[:, None] * -torch.expm1(-span) / span * towards @ vectors.mT
    return (weights @ x if few else weights) @ data.features.mT


def _standardised(values: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows ..."]:
    centred = values - values.mean(0)
    return centred / centred.square().mean(0).sqrt().clamp_min(1e-9)
