r"""The attack of Wang et al.: the moments of one gradient give the span of the inputs and a small tensor of them.

Every input is one term of this symmetric tensor. A term of order 3 stays the same if the input and its residual both
change sign, so a moment of even order decides the sign; a term of order 4 stays the same if only the input changes
sign, so a moment of odd order decides it. The result has a sampling error of order $m^{-1/2}$, and its `misfit` is of
this size. The caller gives the batch size, and may give the length of the inputs and the possible labels.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import draws
from leakage.inversion import moments, span, symmetries
from leakage.inversion.hermite import RecoveryMoments, recovery_moments
from leakage.inversion.moments import Moments
from leakage.inversion.nonlinear_least_squares import HiddenEquations, OutputEquations
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.span import Span
from leakage.inversion.tensor_decomposition import Decomposition, decompose, powers

SOURCES: Mapping[str, Callable[..., Moments]] = {
    "outputs": moments.from_outputs,
    "hidden": moments.from_hidden,
    "span": moments.from_hidden,
}
"""The values of `source` in `reconstruct`, with the function of the moments; "span" differs only in the span."""
DIRECTIONS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "mean": lambda mean, _: mean,
    "random": lambda mean, generator: draws.gaussian(mean.shape, generator=generator, like=mean),
}
"""The values of `contraction` except "none": the direction a from the moment of order 1 and a generator, unscaled."""
_CLEAR_GAP = 1.5  # a span with a larger `gap` counts as found: pure noise gives 1.0 to 1.2
_MORE_DIRECTIONS = 4  # random ones, if the gap is not clear: the moment of order 1 may be orthogonal to an input


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
) -> Reconstruction:
    r"""Find a batch of inputs of equal length, `norm`, with residuals and labels, from the moments of one gradient.

    1. V spans the inputs: the rows of G, or the leading eigenvectors of the moment of order 2 (of order 3 in one
       direction where $s_2 = 0$).
    2. The terms of $T(V, V, V) = s_3 \sum_i r_i u_i^{\otimes 3}$ are the $u_i = V^\top x_i$ up to sign. Where
       $s_3 = 0$, the moment of order 4 takes the place of T.
    3. Moments of even order give $r_i$. Moments of odd order give $\pm r_i$; a minus shows that $u_i$ has the wrong
       sign. If the activation has no even moments, the sign is chosen whose label is nearest to a possible label.
    4. The $r_i$ are refitted to the gradient, and $y_i = f(x_i) - r_i$.

    Source: Wang et al., Algorithm 1 with Section 4.1, Remarks 3 and 4 and Appendix B. Their attack has `source`
    "outputs" or "hidden", `centre` False, and a single direction as `contraction`. The label
    follows from (4.1); Algorithm 1 prints it with the opposite sign and without dividing by $\lambda$. The refit, the
    exact span, `centre` and the contraction "none" are ours.

    Args:
        source: "outputs" for the gradient g of the output layer alone, "hidden" for the moments of G, or "span" for
            the exact row space of G and its tensor.
        contraction: the direction a of Remarks 3 and 4: "mean" for the moment of order 1, or "random". With "none" the
            span is found in the direction "mean", in random ones if its gap is not clear, and refined in all its own
            directions, and the tensor of order 4 is not contracted. Used only where $s_2$ or $s_3$ is 0.
        centre: whether to remove from the moments the part that only adds noise.
        labels: the values that a label may take; by default ±1, and 0 and 1 for the logistic loss.

    Nothing checks B for `source` "outputs": B inputs are then returned for a smaller batch, too.
    """
    recovery = recovery_moments(observation.activation, norm=norm)
    if recovery.span_order is None:
        raise ValueError(f"`activation` must have a moment of order 2 or 3, got {observation.activation.name!r}.")
    estimates = SOURCES[source](observation, centre=centre)
    if source != "outputs":
        assert observation.hidden is not None
        # For "hidden" this only checks the rank, so it draws from a copy of the generator.
        span_generator = generator if source == "span" else generator.clone_state()
        found = span.from_rows(observation.hidden, batch=batch, generator=span_generator)
    if source != "span":
        found = _find_span(estimates, recovery, batch, contraction, generator)
    terms = _find_terms(estimates, found.basis, recovery, contraction, generator)
    directions, first_residuals = _choose_signs(estimates, found.basis, terms, recovery, norm)
    inputs = norm * normalize(directions @ found.basis.mT, dim=-1)
    use_output_layer = source == "outputs"
    signs, ambiguities = symmetries.signs_from_labels(
        observation, inputs, first_residuals, labels, outputs_seen=use_output_layer
    )
    inputs = signs.unsqueeze(-1) * inputs
    residuals, misfit = refit(observation, inputs, use_output_layer=use_output_layer)
    return Reconstruction(inputs, residuals, observation.labels(inputs, residuals), misfit, ambiguities)


def refit(
    observation: Observation, inputs: Float[Tensor, "B d"], *, use_output_layer: bool
) -> tuple[Float[Tensor, " B"], float]:
    """The residuals with which these inputs fit one layer's gradient best, and the relative misfit.

    Source: ours. Wang et al. take the residuals from the weights of the tensor's terms.
    """
    equations = (OutputEquations if use_output_layer else HiddenEquations).from_observation(observation)
    gram, right = equations.residual_equations(inputs.unsqueeze(0))
    residuals = (torch.linalg.pinv(gram, hermitian=True) @ right.unsqueeze(-1)).squeeze(-1)
    return residuals[0], equations.misfit(inputs, residuals[0])


def _find_span(
    estimates: Moments, recovery: RecoveryMoments, batch: int, contraction: str, generator: torch.Generator
) -> Span:
    """Step 1 of `reconstruct`: the span, from the moments."""
    if recovery.span_order == 2:
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
    estimates: Moments,
    basis: Float[Tensor, "d B"],
    recovery: RecoveryMoments,
    contraction: str,
    generator: torch.Generator,
) -> Decomposition:
    """Step 2 of `reconstruct`: the terms of the tensor."""
    tensor = estimates.tensor(basis, order=recovery.tensor_order)
    if recovery.tensor_order == 4 and contraction != "none":
        # A direction within the span: one of the whole space would weaken the terms by a factor √d.
        direction = DIRECTIONS[contraction](basis.mT @ estimates.first, generator)
        tensor = tensor @ normalize(direction, dim=0)
    # `contractions=None` is the limit of many random contractions, without their noise.
    return decompose(tensor, order=tensor.ndim, contractions=None, generator=generator)


def _choose_signs(
    estimates: Moments, basis: Float[Tensor, "d B"], terms: Decomposition, recovery: RecoveryMoments, norm: float
) -> tuple[Float[Tensor, "B B"], Float[Tensor, " B"]]:
    """Step 3 of `reconstruct`: the factors with the signs of the inputs, and first estimates of the residuals.

    If the activation has no even moments, the residuals are made positive; `reconstruct` corrects signs by labels.
    """
    if recovery.tensor_order == 3:
        odd = terms.weights / (recovery.moments[3] * norm**3)
    else:
        odd = torch.linalg.pinv(terms.factors.mT) @ (basis.mT @ estimates.first) / (recovery.moments[1] * norm)
    if recovery.span_order == 3:
        return terms.factors * _sign(odd), odd.abs()
    second = basis.mT @ estimates.second(basis) / (recovery.moments[2] * norm**2)
    even = torch.linalg.pinv(powers(terms.factors, 2).mT) @ second.flatten()
    return terms.factors * _sign(odd * even), even


def _sign(values: Float[Tensor, " B"]) -> Float[Tensor, "B 1"]:
    return torch.where(values < 0, -1.0, 1.0).to(values).unsqueeze(-1)
