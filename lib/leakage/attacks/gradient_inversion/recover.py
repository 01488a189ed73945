r"""A batch from one gradient, up to rounding: the span, directions in it, least squares, and a certificate.

The gradient of the hidden layer gives the span of the batch exactly, so that few numbers are left to find; that of the
output layer alone needs many more neurons. What is returned carries its misfit over all neurons in `residual`: below
`refine.certificate_threshold` the batch explains the gradient to rounding, anything above is a failure and says so. The
attack sees an `Observation` and what its caller claims to know of lengths and labels.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import arguments
from leakage.attacks.gradient_inversion import relu_decoding, span, symmetries, tensor_attack
from leakage.attacks.gradient_inversion.equations import EQUATIONS_PER_UNKNOWN, HiddenEquations, OutputEquations
from leakage.attacks.gradient_inversion.moments import HiddenMoments
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction
from leakage.attacks.gradient_inversion.refine import Solutions, certificate_threshold, solve
from leakage.attacks.gradient_inversion.tensor_decomposition import decompose
from leakage.theory.hermite import route

_LENGTHS = (0.5, 2.0)  # of later starts, if the length is unknown
_ROWS_PER_MONOMIAL = (2, 8)  # least and most neurons in a fit, for each of its unknowns
_SETTLING_STEPS = 20  # for the polish over all neurons, which starts at the solution of some of them


def recover(
    observation: Observation,
    *,
    batch: int,
    norm: float | None = None,
    labels: Sequence[float] | None = None,
    tries: int = 6,
    starts: int = 8,
    generator: torch.Generator,
) -> Reconstruction:
    r"""Find the batch behind a gradient, with residuals, labels and the misfit that certifies it.

    1. V spans the inputs: the rows of G (`span.from_rows`).
    2. The first start has the directions of the tensor in the span (`input_directions`), the later ones are the same
       with other signs, or random.
    3. `refine.solve` on some neurons, with all starts of a try at once.
    4. The best batch that explains all of the gradient, and has the labels it may have, ends the search.

    Without G, step 1 and 2 are `tensor_attack.reconstruct` from g, and there is one start. Piecewise linear activations
    go to `relu_decoding.decode`.

    Source: not in Wang et al.; step 2 has their tensor, within the exact span.

    Args:
        observation: the network and its gradient.
        batch: B.
        norm: the length of all inputs; `None` if it is unknown or not the same for all. To know it helps: g alone may
            not be enough without.
        labels: the values that labels may have, which a batch must then have to be accepted; where none has them, the
            answer's `ambiguous` says so. `None` accepts any, and decides between an input and its mirror image as
            `tensor_attack.reconstruct` does.
        tries: how often to start.
        starts: how many starts at a time from the second try on.
        generator: for sketches and starts.

    Returns:
        The batch found, with what leaves it undetermined, which a certificate cannot see; if none is certified, the
        one of the least misfit. The certificate follows the precision of the gradient, `refine.certificate_threshold`.

    Raises:
        ValueError: if `batch` exceeds m, d or the rank of the gradient, the activation does not identify inputs,
            `tries` or `starts` is below 1, `norm` is not positive or missing where it cannot be found, or `labels` is
            empty or not finite.
    """
    for name, value in (("batch", batch), ("tries", tries), ("starts", starts)):
        arguments.count(name, value, least=1)
    symmetries.check(labels)
    if norm is not None:
        arguments.number("norm", norm, above=0)
    if observation.activation.degree == 1 and not observation.activation.smooth:
        found = relu_decoding.decode(observation, batch=batch, norm=norm, labels=labels, generator=generator)
    elif observation.hidden is None:
        found = _from_outputs(observation, batch, norm, labels, generator)
    else:
        found = _from_rows(observation, batch, norm, labels, tries, starts, generator)
    return dataclasses.replace(found, ambiguities=found.ambiguities + _undetermined(observation, found, labels))


def _from_rows(
    observation: Observation,
    batch: int,
    norm: float | None,
    labels: Sequence[float] | None,
    tries: int,
    starts: int,
    generator: torch.Generator,
) -> Reconstruction:
    """The batch from G, in the span of its rows."""
    assert observation.hidden is not None  # or it is `_from_outputs`
    enough = certificate_threshold(observation.hidden.dtype)
    basis = span.from_rows(observation.hidden, batch=batch, generator=generator).basis
    everything = HiddenEquations.from_observation(observation, basis)
    some = HiddenEquations.from_observation(observation, basis, neurons=EQUATIONS_PER_UNKNOWN * batch)
    best: Solutions | None = None
    for points in _starts(everything, norm=norm, tries=tries, starts=starts, generator=generator):
        polished = solve(some, points, norm=norm)
        for start in (polished.misfits < enough).nonzero().squeeze(-1):
            inputs = polished.points[start] @ basis.mT
            result = _finished(observation, inputs, polished.residuals[start], labels)
            if result.residual < enough and symmetries.labels_allowed(result, labels):
                return result
        best = min((best or polished, polished), key=lambda other: float(other.misfits.amin()))
    assert best is not None  # since `tries` is at least 1
    start = best.misfits.argmin(0, keepdim=True)
    last = solve(everything, best.points[start], best.residuals[start], norm=norm, steps=_SETTLING_STEPS)
    return _finished(observation, last.points[0] @ basis.mT, last.residuals[0], labels)


def input_directions(
    equations: HiddenEquations, *, norm: float = 1.0, generator: torch.Generator
) -> Float[Tensor, "b b"] | None:
    r"""Unit vectors along the inputs, up to sign, from the tensor of the gradient in their span.

    The rows $c_j$ are fitted by polynomials of degree p - 1 in $v_j$, whose leading coefficients are

    $$ \frac{1}{(p - 1)!} T, \qquad T \approx s_p \sum_i r_i u_i^{\otimes p}, $$

    with p = 3, or 4 where $s_3 = 0$. Moments average the same tensor, but keep the noise of all lower degrees. They
    serve where a fit has fewer than twice as many neurons as monomials, freed of what is linear in $v_j$; and where
    even this is too much, $m \le 2 (B + 1)$, or too few neurons differ for a fit, there are no directions.

    Source: Wang et al., Appendix B, for the moments; the fits are not in the paper.

    Raises:
        ValueError: if the activation does not identify inputs.
    """
    order = route(equations.activation, norm=norm).tensor
    neurons, size = equations.rows.shape
    monomials = math.comb(size + order - 1, size)
    identity = torch.eye(size, dtype=equations.rows.dtype, device=equations.rows.device)
    if neurons >= _ROWS_PER_MONOMIAL[0] * monomials:
        few = slice(_ROWS_PER_MONOMIAL[1] * monomials)
        try:
            estimate = _moments(equations.rows[few], equations.target[few]).fit_tensor(identity, order=order)
        except ValueError:  # too few neurons differ
            return None
    elif neurons > 2 * (size + 1):
        # Less what is constant or linear in the weights, which for a softplus is nearly all.
        basis = torch.linalg.qr(torch.cat([torch.ones_like(equations.rows[:, :1]), equations.rows], dim=1)).Q
        left = equations.target - basis @ (basis.mT @ equations.target)
        estimate = _moments(equations.rows, left).tensor(identity, order=order)
    else:
        return None
    return decompose(estimate, order=order, generator=generator).factors


def _moments(rows: Float[Tensor, "n b"], target: Float[Tensor, "n b"]) -> HiddenMoments:
    """Those of some neurons, in the span."""
    return HiddenMoments(rows, target.mean(0), target / len(target))


def _starts(
    equations: HiddenEquations, *, norm: float | None, tries: int, starts: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "s b b"]]:
    """The starts of every try; signs are fitted, unless the activation leaves no trace of them."""
    length = 1.0 if norm is None else norm
    first = input_directions(equations, norm=length, generator=generator)
    mirrored = equations.activation.centre is not None
    if first is not None:
        first = length * first.unsqueeze(0)
        yield first if mirrored else equations.choose_signs(first)
    for _ in range(tries - (first is not None)):
        drawn = _random_starts(equations, starts, length=length, spread=norm is None, generator=generator)
        if mirrored:
            yield drawn
        elif first is None:
            yield equations.choose_signs(drawn)
        else:
            half = starts // 2
            yield torch.cat([equations.choose_signs(drawn[half:]), first * drawn[:half, :, :1].sign()])


def _random_starts(
    equations: HiddenEquations, starts: int, *, length: float, spread: bool, generator: torch.Generator
) -> Float[Tensor, "s b b"]:
    """Uniform directions of one length, or of one for each start if it is to be `spread`."""
    like, side = equations.rows, equations.rows.shape[1]
    drawn = torch.randn((starts, side, side), generator=generator, dtype=like.dtype, device=like.device)
    drawn = length * normalize(drawn, dim=-1)
    if not spread:
        return drawn
    low, high = _LENGTHS
    place = torch.rand((starts, 1, 1), generator=generator, dtype=like.dtype, device=like.device)
    return drawn * low * (high / low) ** place


def _from_outputs(
    observation: Observation, batch: int, norm: float | None, labels: Sequence[float] | None, generator: torch.Generator
) -> Reconstruction:
    """The batch from g alone, by one start."""
    length = 1.0 if norm is None else norm
    start = tensor_attack.reconstruct(
        observation, batch=batch, source="outputs", norm=length, labels=labels, generator=generator
    )
    polished = solve(OutputEquations.from_observation(observation), start.inputs.unsqueeze(0), norm=norm)
    return _finished(observation, polished.points[0], polished.residuals[0], labels)


def _finished(
    observation: Observation, inputs: Tensor, residuals: Tensor, labels: Sequence[float] | None
) -> Reconstruction:
    """A batch with the signs that its labels ask for, its labels and its certificate."""
    seen = observation.hidden is None
    signs, ambiguous = symmetries.signs_from_labels(observation, inputs, residuals, labels, outputs_seen=seen)
    inputs, residuals = signs.unsqueeze(-1) * inputs, signs * residuals
    found = observation.labels(inputs, residuals)
    # The layer whose equations were solved: beside the m numbers of g a fault in G, smaller by m, would not show.
    equations = (OutputEquations if observation.hidden is None else HiddenEquations).of(observation)
    return Reconstruction(inputs, residuals, found, equations.misfit(inputs, residuals), ambiguous)


def _undetermined(observation: Observation, found: Reconstruction, labels: Sequence[float] | None) -> tuple[str, ...]:
    """What a certificate cannot see: inputs that the gradient hardly holds or holds as one, and labels out of place."""
    inputs, sizes = found.inputs, found.inputs.norm(dim=-1)
    values, slopes = observation.activation.derivatives(observation.weights @ inputs.mT, order=1)
    if observation.hidden is not None:
        seen, target = slopes.norm(dim=0) * sizes / len(observation.weights), observation.hidden.norm()
    else:
        assert observation.outputs is not None  # or there is no gradient at all
        seen, target = values.norm(dim=0), observation.outputs.norm()
    # What has a share s of a gradient that is known to c is itself known to c / s, and twins to √c.
    rounding = certificate_threshold(inputs.dtype) ** 0.5
    apart = torch.cdist(inputs, inputs, compute_mode="donot_use_mm_for_euclid_dist")
    if observation.activation.centre is not None:
        mirrored = torch.cdist(inputs, -inputs, compute_mode="donot_use_mm_for_euclid_dist")
        apart = torch.minimum(apart, mirrored)
    twins = (apart <= rounding * (sizes + sizes.unsqueeze(-1))).triu(1)
    words = {
        "an input without a residual may be any other": bool((found.residuals.abs() * seen <= rounding * target).any()),
        "two inputs are one, of which only the sum of r is determined": bool(twins.any()),
        "no batch was found whose labels are those they may be": not symmetries.labels_allowed(found, labels),
    }
    return tuple(word for word, holds in words.items() if holds)
