r"""Gradient inversion by tensor decomposition: moments of one gradient, the span of the inputs, and the inputs in it.

The attack sees an `Observation` and what its caller claims to know: the batch size, the length of the inputs and the
values that labels may have. Within the span every input is one term of a small symmetric tensor; moments of the other
parity give its sign. What is found carries a sampling error of order $m^{-1/2}$; nothing here iterates it away, and
nothing hides a doubtful answer: see `TensorReconstruction.doubts`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import arguments
from leakage.attacks.gradient_inversion import doubts, moments, span, symmetries
from leakage.attacks.gradient_inversion.equations import HiddenEquations, OutputEquations
from leakage.attacks.gradient_inversion.moments import Moments
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction
from leakage.attacks.gradient_inversion.span import Span
from leakage.attacks.gradient_inversion.tensor_decomposition import Decomposition, decompose, powers
from leakage.theory.hermite import Route, route

SOURCES: Mapping[str, Callable[..., Moments]] = {
    "outputs": moments.from_outputs,
    "hidden": moments.from_hidden,
    "span": moments.from_hidden,
}
"""The gradients by name, with the moments of each."""
DIRECTIONS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "mean": lambda mean, _: mean,
    "random": lambda mean, draws: torch.randn(mean.shape, generator=draws, dtype=mean.dtype, device=mean.device),
    "ones": lambda mean, _: torch.ones_like(mean),
}
"""The directions a by name, of any length, from the moment of order 1."""
CONTRACTIONS = ("none", *DIRECTIONS)
_CLEAR_GAP = 1.5  # of the eigenvalues of the moment in one direction; pure noise gives 1.0 to 1.2
_MORE_DIRECTIONS = 4  # tried where the mean of the inputs is orthogonal to one of them


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorReconstruction(Reconstruction):
    r"""A batch, and how clearly it stood out.

    Attributes:
        span: the subspace in which the inputs were found.
        terms: the decomposition of the tensor in the basis of the span.
        route: the moments that were used.
        judge: gives the `doubts`.
    """

    span: Span
    terms: Decomposition
    route: Route
    judge: Callable[[], tuple[str, ...]] = field(repr=False)

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against the answer, in words; empty where nothing does.

        Found when first asked for: it takes as long as the span did, since two halves of the neurons are compared.
        """
        return self.judge()


def reconstruct(
    observation: Observation,
    *,
    batch: int,
    source: str = "span",
    norm: float = 1.0,
    contraction: str = "none",
    centre: bool = True,
    labels: Sequence[float] | None = None,
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
        generator: for starts, contractions and sketches.

    Raises:
        ValueError: if a name is unknown, B is not between 1 and m and d, the norm is not positive and finite, the
            gradient that `source` needs is missing or, for G, has a rank below B (g has no rank: see `doubts`), the
            activation does not identify inputs at all, or `labels` is empty or not finite.
    """
    arguments.count("batch", batch, least=1, most=min(observation.weights.shape))
    arguments.choice("source", source, SOURCES)
    arguments.choice("contraction", contraction, CONTRACTIONS)
    arguments.number("norm", norm, above=0)
    symmetries.check(labels)
    way = route(observation.activation, norm=norm)
    if way.span is None:
        raise ValueError(f"`activation` must have a moment of order 2 or 3, got {observation.activation.name!r}.")
    estimates = SOURCES[source](observation, centre=centre)
    begin = generator.clone_state()  # a look must move no answer

    def of_part(part: Observation) -> Span:
        return _find_span(SOURCES[source](part, centre=centre), way, batch, contraction, begin.clone_state())

    find = None if source == "span" else of_part
    if source == "hidden":
        assert observation.hidden is not None  # or there would be no moments of it
        span.check_rank(observation.hidden, batch=batch, generator=generator.clone_state())
    if source == "span":
        assert observation.hidden is not None
        found = span.from_rows(observation.hidden, batch=batch, generator=generator)
    else:
        found = _find_span(estimates, way, batch, contraction, generator)
    terms = _find_terms(estimates, found.basis, way, contraction, generator)
    signed, rough = _with_signs(estimates, found.basis, terms, way, norm)
    inputs = norm * normalize(signed @ found.basis.mT, dim=-1)
    turns, ambiguous = symmetries.signs_from_labels(
        observation, inputs, rough, labels, outputs_seen=source == "outputs"
    )
    inputs = turns.unsqueeze(-1) * inputs
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
        judge=lambda: doubts.in_words(observation, found, terms, find=find, order=way.tensor, misfit=misfit),
    )


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
    equations = (
        OutputEquations.from_observation(observation) if outputs else HiddenEquations.from_observation(observation)
    )
    gram, right = equations.linear(inputs.unsqueeze(0))
    residuals = (torch.linalg.pinv(gram, hermitian=True) @ right.unsqueeze(-1)).squeeze(-1)
    return residuals[0], equations.misfit(inputs, residuals[0])


def _find_span(estimates: Moments, way: Route, batch: int, contraction: str, generator: torch.Generator) -> Span:
    """Step 1, by moments."""
    if way.span == 2:
        return span.from_moments(estimates, batch=batch, generator=generator)
    if contraction != "none":
        direction = DIRECTIONS[contraction](estimates.first, generator)
        return span.from_moments(estimates, batch=batch, order=3, direction=direction, generator=generator)
    best = span.from_moments(estimates, batch=batch, order=3, generator=generator)
    for _ in range(_MORE_DIRECTIONS):
        if best.gap >= _CLEAR_GAP:
            break
        direction = DIRECTIONS["random"](estimates.first, generator)
        other = span.from_moments(estimates, batch=batch, order=3, direction=direction, generator=generator)
        best = max(best, other, key=lambda candidate: candidate.gap)
    return span.sharpen(estimates, best)


def _find_terms(
    estimates: Moments, basis: Float[Tensor, "d B"], way: Route, contraction: str, generator: torch.Generator
) -> Decomposition:
    """Step 2."""
    tensor = estimates.tensor(basis, order=way.tensor)
    if way.tensor == 4 and contraction != "none":
        # Within the span: a direction of the whole space would lose a factor √d.
        direction = DIRECTIONS[contraction](basis.mT @ estimates.first, generator)
        tensor = tensor @ normalize(direction, dim=0)
    # All slices, which is what ever more random contractions tend to: one thing less to draw.
    return decompose(tensor, order=tensor.ndim, contractions=None, generator=generator)


def _with_signs(
    estimates: Moments, basis: Float[Tensor, "d B"], terms: Decomposition, way: Route, norm: float
) -> tuple[Float[Tensor, "B B"], Float[Tensor, " B"]]:
    """Step 3: the factors with the signs of the inputs, and first estimates of the residuals.

    If the activation has no even moments, signs are such that all residuals are positive.
    """
    if way.tensor == 3:
        signed = terms.weights / (way.moments[3] * norm**3)
    else:
        signed = torch.linalg.pinv(terms.factors.mT) @ (basis.mT @ estimates.first) / (way.moments[1] * norm)
    if way.span == 3:
        return terms.factors * _sign(signed), signed.abs()
    second = basis.mT @ estimates.second(basis) / (way.moments[2] * norm**2)
    plain = torch.linalg.pinv(powers(terms.factors, 2).mT) @ second.flatten()
    return terms.factors * _sign(signed * plain), plain


def _sign(values: Float[Tensor, " B"]) -> Float[Tensor, "B 1"]:
    return torch.where(values < 0, -1.0, 1.0).to(values).unsqueeze(-1)
