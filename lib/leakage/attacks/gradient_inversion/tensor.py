r"""Gradient inversion by tensor decomposition: moments of one gradient, the span of the inputs, and the inputs in it.

The attack sees an `Observation` and what its caller claims to know: the batch size, the length of the inputs and the
values that labels may have. Within the span every input is one term of a small symmetric tensor; moments of the other
parity give its sign. What is found carries a sampling error of order $m^{-1/2}$; nothing here iterates it away, and
nothing hides a doubtful answer: see `TensorReconstruction.doubts`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage.attacks.gradient_inversion import moments, span
from leakage.attacks.gradient_inversion.decompose import Decomposition, decompose, powers
from leakage.attacks.gradient_inversion.moments import Moments
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction
from leakage.attacks.gradient_inversion.span import Span
from leakage.theory import gradient_symmetries
from leakage.theory.hermite import Route, route

SOURCES = ("outputs", "hidden", "span")
CONTRACTIONS = ("none", "mean", "random", "ones")
_LEAST_GAP = 1.5  # of eigenvalues; pure noise gives 1.0 to 1.2
_MOST_NOISE = 0.5  # in the terms: within a factor of 2.5 the relative error of the inputs, on tensors of 8 and 16 terms
_MOST_MISFIT = 0.5  # of the gradient
_TIE = 1e-9  # labels of mirror images that agree up to rounding; other ties are at the level of the sampling error
_MORE_DIRECTIONS = 4  # tried where the mean of the inputs is orthogonal to one of them


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorReconstruction(Reconstruction):
    r"""A batch, and how clearly it stood out.

    Attributes:
        span: the subspace in which the inputs were found.
        terms: the decomposition of the tensor in the basis of the span.
        route: the moments that were used.
        doubts: what speaks against the answer, in words; empty where nothing does.
    """

    span: Span
    terms: Decomposition
    route: Route
    doubts: tuple[str, ...] = ()

    @property
    def kappa(self) -> float:
        r"""$\max |\hat r_i| / \min |\hat r_i|$: how much fainter the faintest input is than the clearest."""
        sizes = self.residuals.abs()
        return float(sizes.max() / sizes.min())


def reconstruct(
    observation: Observation,
    *,
    batch: int,
    source: str = "span",
    norm: float = 1.0,
    contraction: str = "none",
    centre: bool = True,
    labels: Sequence[float] | None = None,
    method: str = "joint",
    generator: torch.Generator,
) -> TensorReconstruction:
    r"""Find a batch of inputs of one length, their residuals and labels, from the moments of a single gradient.

    1. V spans the inputs: the rows of G, or the leading eigenvectors of the moment of order 2 (of order 3 in one
       direction where $s_2 = 0$).
    2. The terms of $T(V, V, V) = s_3 \sum_i r_i u_i^{\otimes 3}$ are the $u_i = V^\top x_i$ up to sign; where
       $s_3 = 0$ those of the moment of order 4.
    3. Moments of even order give $r_i$, those of odd order $\pm r_i$, with the sign of $u_i$. Where an activation has
       no even ones, the sign is the one whose label is the nearest to a possible one.
    4. The $r_i$ are refitted to the gradient, and $y_i = f(x_i) - r_i$.

    Source: Wang et al., Algorithm 1 with Section 4.1, Remarks 3 and 4 and Appendix B, which are `source` "outputs" or
    "hidden" with `centre` False and a single direction. The label follows from (4.1); Algorithm 1 prints it with the
    opposite sign and without dividing by $\lambda$. The refit, the exact span, centring and "none" are ours.

    Args:
        observation: the network and its gradient.
        batch: B, the number of inputs.
        source: "outputs" for the gradient g of the output layer alone, "hidden" for the moments of G, or "span" for
            the exact row space of G and its tensor.
        norm: t, the length of all inputs.
        contraction: the direction a of Remarks 3 and 4: "mean" for the moment of order 1, "random", "ones" for
            $(1, \dots, 1)$, or "none" to use all directions of the span.
        centre: whether the moments are freed of what only adds noise to them.
        labels: the values that labels may have: ±1, for the logistic loss 0 and 1, unless told otherwise.
        method: how the tensor is decomposed, in `decompose.METHODS`.
        generator: for starts, contractions and sketches.

    Raises:
        ValueError: if a name is unknown, B is not between 1 and m and d, the norm is not positive, the gradient that
            `source` needs is missing or has a rank below B, the activation does not identify inputs at all, or
            `labels` is empty.
    """
    _check(observation, batch=batch, source=source, norm=norm, contraction=contraction, labels=labels)
    way = route(observation.activation, norm=norm)
    if way.span is None:
        raise ValueError(f"`activation` must have a moment of order 2 or 3, got {observation.activation.name!r}.")
    estimates = (moments.of_outputs if source == "outputs" else moments.of_hidden)(observation, centre=centre)
    found = _find_span(observation, estimates, way, batch, source, contraction, generator)
    terms = _find_terms(estimates, found.basis, way, contraction, method, generator)
    signed, rough = _with_signs(estimates, found.basis, terms, way, norm)
    inputs = norm * normalize(signed @ found.basis.mT, dim=-1)
    ambiguous = gradient_symmetries.in_words(observation.activation, outputs_seen=source == "outputs")
    if observation.activation.centre is not None:
        turns, tied = upright(observation, inputs, rough, labels)
        inputs = turns.unsqueeze(-1) * inputs
        ambiguous = ambiguous if tied else ()
    residuals, misfit = refit(observation, inputs, outputs=source == "outputs")
    return TensorReconstruction(
        inputs,
        residuals,
        observation.labels(inputs, residuals),
        misfit,
        ambiguous,
        span=found,
        terms=terms,
        route=way,
        doubts=_doubts(observation, batch, found, terms, way, misfit),
    )


def upright(
    observation: Observation,
    inputs: Float[Tensor, "B d"],
    residuals: Float[Tensor, " B"],
    labels: Sequence[float] | None = None,
) -> tuple[Float[Tensor, " B"], bool]:
    r"""The sign of each $(x_i, r_i)$ whose label $f(x_i) - r_i$ is nearer to a possible one, and whether any is tied.

    Args:
        observation: the network that was sent, with an activation that can be mirrored.
        inputs: $x_i$ up to sign.
        residuals: $r_i$, with that sign.
        labels: the possible values; `None` for ±1, and for 0 and 1 if the loss is logistic.
    """
    possible = labels if labels is not None else (0.0, 1.0) if observation.logistic else (-1.0, 1.0)
    allowed = inputs.new_tensor(possible)
    one, other = (
        (observation.labels(sign * inputs, sign * residuals).unsqueeze(-1) - allowed).abs().amin(-1)
        for sign in (1.0, -1.0)
    )
    tied = (one - other).abs() <= _TIE * (1 + one)
    return torch.where(other < one, -1.0, 1.0).to(inputs), bool(tied.any())


def refit(
    observation: Observation, inputs: Float[Tensor, "B d"], *, outputs: bool
) -> tuple[Float[Tensor, " B"], float]:
    r"""The residuals $r_i$ with which these inputs fit a gradient best, and the relative distance that is left.

    Least squares over all entries of $g_j = \sum_i r_i \sigma(w_j^\top x_i)$ if `outputs`, otherwise of
    $m G_j = \sum_i r_i \sigma'(w_j^\top x_i)\, x_i$.

    Source: not in Wang et al., whose residuals are the weights of the tensor.

    Raises:
        ValueError: if the observation lacks the gradient asked for.
    """
    name = "outputs" if outputs else "hidden"
    observed = getattr(observation, name)
    if observed is None:
        raise ValueError(f"`observation` must have `{name}` to refit residuals to; got None.")
    values, slopes = observation.activation.derivatives(observation.weights @ inputs.mT, order=1)
    # Products over neurons and over coordinates separate, so that no array has m times d times B entries.
    features = values if outputs else slopes
    other = torch.ones_like(inputs[:, :1]) if outputs else inputs
    target = observed.unsqueeze(-1) if outputs else len(observed) * observed
    gram = (features.mT @ features) * (other @ other.mT)
    residuals = torch.linalg.pinv(gram, hermitian=True) @ (features * (target @ other.mT)).sum(0)
    left = target - (features * residuals) @ other
    return residuals, float(left.norm() / target.norm())


def _find_span(
    observation: Observation,
    estimates: Moments,
    way: Route,
    batch: int,
    source: str,
    contraction: str,
    generator: torch.Generator,
) -> Span:
    """Step 1."""
    if source == "span":
        assert observation.hidden is not None  # or there would be no moments of it
        return span.of_rows(observation.hidden, batch=batch, generator=generator)
    if way.span == 2:
        return span.of_moments(estimates, batch=batch, generator=generator)
    if contraction != "none":
        direction = DIRECTIONS[contraction](estimates.first(), generator)
        return span.of_moments(estimates, batch=batch, order=3, direction=direction, generator=generator)
    best = span.of_moments(estimates, batch=batch, order=3, generator=generator)
    for _ in range(_MORE_DIRECTIONS):
        if best.gap >= _LEAST_GAP:
            break
        direction = DIRECTIONS["random"](estimates.first(), generator)
        other = span.of_moments(estimates, batch=batch, order=3, direction=direction, generator=generator)
        best = max(best, other, key=lambda candidate: candidate.gap)
    return span.sharpened(estimates, best)


def _find_terms(
    estimates: Moments,
    basis: Float[Tensor, "d B"],
    way: Route,
    contraction: str,
    method: str,
    generator: torch.Generator,
) -> Decomposition:
    """Step 2."""
    tensor = estimates.tensor(basis, order=way.tensor)
    if way.tensor == 4 and contraction != "none":
        # Within the span: a direction of the whole space would lose a factor √d.
        direction = DIRECTIONS[contraction](basis.mT @ estimates.first(), generator)
        tensor = tensor @ normalize(direction, dim=0)
    # All slices, which is what ever more random contractions tend to: one thing less to draw.
    return decompose(tensor, order=tensor.ndim, method=method, contractions=None, generator=generator)


def _with_signs(
    estimates: Moments, basis: Float[Tensor, "d B"], terms: Decomposition, way: Route, norm: float
) -> tuple[Float[Tensor, "B B"], Float[Tensor, " B"]]:
    """Step 3: the factors with the signs of the inputs, and first estimates of the residuals.

    If the activation has no even moments, signs are such that all residuals are positive.
    """
    if way.tensor == 3:
        signed = terms.weights / (way.moments[3] * norm**3)
    else:
        signed = torch.linalg.pinv(terms.factors.mT) @ (basis.mT @ estimates.first()) / (way.moments[1] * norm)
    if way.span == 3:
        return terms.factors * _sign(signed), signed.abs()
    second = basis.mT @ estimates.second(basis) / (way.moments[2] * norm**2)
    plain = torch.linalg.pinv(powers(terms.factors, 2).mT) @ second.flatten()
    return terms.factors * _sign(signed * plain), plain


def _sign(values: Float[Tensor, " B"]) -> Float[Tensor, "B 1"]:
    return torch.where(values < 0, -1.0, 1.0).to(values).unsqueeze(-1)


def _random(mean: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)


DIRECTIONS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "mean": lambda mean, _: mean,
    "random": _random,
    "ones": lambda mean, _: torch.ones_like(mean),
}
"""The directions a by name, of any length, from the moment of order 1."""


def _doubts(
    observation: Observation, batch: int, found: Span, terms: Decomposition, way: Route, misfit: float
) -> tuple[str, ...]:
    neurons, noise = len(observation.weights), _noise(terms, way.tensor)
    doubts = {
        f"{neurons} neurons are few for {batch} inputs": neurons < 2 * (batch + 1),
        f"the span has a gap of {found.gap:.2f} only": found.gap < _LEAST_GAP,
        f"the terms of the tensor hold about {noise:.0%} of noise": noise > _MOST_NOISE,
        f"{misfit:.0%} of the gradient do not come from this batch": misfit > _MOST_MISFIT,
    }
    return tuple(doubt for doubt, holds in doubts.items() if holds)


def _noise(terms: Decomposition, order: int) -> float:
    """What the residual of the tensor says about the terms: of white noise in all its entries, the part they absorb.

    Nothing for one or two terms of order 3, which fit nearly every tensor of their size.
    """
    size = terms.factors.shape[-1]
    share = size**2 / math.comb(size + order - 1, order)
    left = float(terms.residual)
    return left * math.sqrt(share / (1 - left**2)) if left < 1 else math.inf


def _check(
    observation: Observation,
    *,
    batch: int,
    source: str,
    norm: float,
    contraction: str,
    labels: Sequence[float] | None,
) -> None:
    m, d = observation.weights.shape
    if not 1 <= batch <= min(m, d):
        raise ValueError(f"`batch` must be between 1 and the smaller of m = {m} and d = {d}, got {batch!r}.")
    if source not in SOURCES:
        raise ValueError(f"`source` must be one of {', '.join(SOURCES)}; got {source!r}.")
    if not norm > 0:
        raise ValueError(f"`norm` must be positive, got {norm!r}.")
    if contraction not in CONTRACTIONS:
        raise ValueError(f"`contraction` must be one of {', '.join(CONTRACTIONS)}; got {contraction!r}.")
    if labels is not None and not len(labels):
        raise ValueError("`labels` must name a value that labels may have, or be None; it is empty.")
