r"""A batch from one gradient, up to rounding: the span, directions in it, least squares, and a certificate.

The gradient G of the hidden layer gives the span of the batch exactly, so that few numbers are left to find. The
gradient g of the output layer alone needs many more neurons. The result has a `misfit` over all neurons: below
`nonlinear_least_squares.certificate_threshold` the batch explains the gradient up to rounding; above it, the attack has
failed.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import arguments, draws
from leakage.inversion import relu_decoding, span, symmetries, tensor_attack
from leakage.inversion.hermite import recovery_moments
from leakage.inversion.moments import HiddenMoments
from leakage.inversion.nonlinear_least_squares import (
    EQUATIONS_PER_UNKNOWN,
    HiddenEquations,
    OutputEquations,
    Solutions,
    certificate_threshold,
    solve,
)
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.tensor_decomposition import decompose

_LENGTHS = (0.5, 2.0)  # range of the inputs' length in random starts, if it is unknown
_ROWS_PER_MONOMIAL = (2, 8)  # least and most neurons in a fit, for each of its unknowns
_FINAL_STEPS = 20  # over all neurons, from the solution of some of them


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
    2. The first start has the directions of the tensor in the span (`input_directions`); later ones have the same
       directions with other signs, or random ones.
    3. `nonlinear_least_squares.solve` on some neurons, with all starts of a try at once.
    4. The first batch that explains the gradient of all neurons, and has possible labels, ends the search. If no try
       finds one, the batch of the least misfit is returned.

    Without G, steps 1 and 2 are `tensor_attack.reconstruct` from g, and there is one start. For piecewise linear
    activations the attack is `relu_decoding.decode`.

    Source: not in Wang et al.; step 2 has their tensor, within the exact span.

    Args:
        batch: B, the number of inputs.
        norm: the length of all inputs; `None` if it is unknown or differs. It helps to know it: g alone may not be
            enough otherwise.
        labels: the values that a label may take; `ambiguities` says so if no batch with such labels is found.
            `None` accepts any, and decides between an input and its mirror image as `symmetries` does by default.

    Raises:
        ValueError: if an argument does not fit, or the rank of the gradient is below `batch`. `TypeError` if a part of
            the observation is no tensor.
    """
    _check_arguments(observation, batch, norm, labels, tries, starts)
    if observation.activation.piecewise_linear:
        assert norm is not None
        found = relu_decoding.decode(observation, batch=batch, norm=norm, labels=labels, generator=generator)
    elif observation.hidden is None:
        found = _recover_from_outputs(observation, batch, norm, labels, generator)
    else:
        found = _recover_from_rows(observation, batch, norm, labels, tries, starts, generator)
    return dataclasses.replace(found, ambiguities=found.ambiguities + _ambiguities(observation, found, labels))


def _check_arguments(
    observation: Observation, batch: int, norm: float | None, labels: Sequence[float] | None, tries: int, starts: int
) -> None:
    """Raise the errors of `recover` that need no computation."""
    weights = arguments.check_real("weights", observation.weights, "m d")
    if weights.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"`weights` must be in float32 or float64, got {weights.dtype}; try `.double()`.")
    m, d = weights.shape
    for name, shape in {"outputs": "m", "hidden": "m d", "readout": "m"}.items():
        value = getattr(observation, name)
        if value is not None:
            arguments.check_real(name, value, shape, like=weights, m=m, d=d)
            if name != "readout" and not bool(value.any()):
                raise ValueError(f"`{name}` must not be zero throughout: every residual is 0, or the layer is cut off.")
    if observation.outputs is None and observation.hidden is None:
        raise ValueError("`observation` must have `outputs` or `hidden`, a gradient to recover the batch from.")
    arguments.check_number("bias", observation.bias)
    arguments.check_count("batch", batch, least=1, most=min(m, d))
    arguments.check_count("tries", tries, least=1)
    arguments.check_count("starts", starts, least=1)
    if norm is not None:
        arguments.check_number("norm", norm, above=0)
    if labels is not None and not len(labels):
        raise ValueError("`labels` must name a possible label, or be None; it is empty.")
    for label in () if labels is None else labels:
        arguments.check_number("labels", label)
    if observation.activation.piecewise_linear:
        name = observation.activation.name
        if observation.hidden is None:
            raise ValueError(f"`observation` must have `hidden`: the output gradient of a {name} is not enough.")
        arguments.check_count("batch", batch, most=relu_decoding.MAX_BATCH)
        if norm is None:
            raise ValueError(
                f"`norm` must be the length of the inputs for {name}, as (s·x, r/s) has the gradient of (x, r); got"
                " None, try 1.0 for normalised ones."
            )


def _recover_from_rows(
    observation: Observation,
    batch: int,
    norm: float | None,
    labels: Sequence[float] | None,
    tries: int,
    starts: int,
    generator: torch.Generator,
) -> Reconstruction:
    """The batch from G, in the span of its rows."""
    assert observation.hidden is not None
    threshold = certificate_threshold(observation.hidden.dtype)
    basis = span.from_rows(observation.hidden, batch=batch, generator=generator).basis
    all_equations = HiddenEquations.from_observation(observation, basis)
    few_equations = HiddenEquations.from_observation(observation, basis, neurons=EQUATIONS_PER_UNKNOWN * batch)
    best: Solutions | None = None
    for points in _starts(all_equations, norm=norm, tries=tries, starts=starts, generator=generator):
        solutions = solve(few_equations, points, norm=norm)
        for start in (solutions.misfits < threshold).nonzero().squeeze(-1):
            inputs = solutions.points[start] @ basis.mT
            result = _reconstruction(observation, inputs, solutions.residuals[start], labels)
            if result.misfit < threshold and symmetries.labels_allowed(result, labels):
                return result
        best = min((best or solutions, solutions), key=lambda other: float(other.misfits.amin()))
    assert best is not None  # since `tries` is at least 1
    start = best.misfits.argmin(0, keepdim=True)
    last = solve(all_equations, best.points[start], best.residuals[start], norm=norm, steps=_FINAL_STEPS)
    return _reconstruction(observation, last.points[0] @ basis.mT, last.residuals[0], labels)


def input_directions(
    equations: HiddenEquations, *, norm: float = 1.0, generator: torch.Generator
) -> Float[Tensor, "b b"] | None:
    r"""Unit vectors along the inputs, up to sign, from the tensor of the gradient in their span.

    The rows $c_j$ are fitted by polynomials of degree p - 1 in $v_j$, whose leading coefficients are

    $$ \frac{1}{(p - 1)!} T, \qquad T \approx s_p \sum_i r_i u_i^{\otimes p}, $$

    with p = 3, or 4 where $s_3 = 0$. Moments average the same tensor, with the noise of all lower degrees. They take
    the place of a fit with fewer than two neurons for each monomial, without the part of $c_j$ that is linear in $v_j$.
    Where there are too few neurons for this, too, $m \le 2 (B + 1)$, or too few of them differ, the result is `None`.

    Source: Wang et al., Appendix B, for the moments; the fits are not in the paper.
    """
    order = recovery_moments(equations.activation, norm=norm).tensor_order
    neurons, size = equations.rows.shape
    monomials = math.comb(size + order - 1, size)
    identity = torch.eye(size, dtype=equations.rows.dtype, device=equations.rows.device)
    if neurons >= _ROWS_PER_MONOMIAL[0] * monomials:
        used = slice(_ROWS_PER_MONOMIAL[1] * monomials)
        try:
            estimate = _moments(equations.rows[used], equations.target[used]).fit_tensor(identity, order=order)
        except ValueError:  # too few neurons differ
            return None
    elif neurons > 2 * (size + 1):
        # For a softplus nearly all of the gradient is constant or linear in the weights.
        basis = torch.linalg.qr(torch.cat([torch.ones_like(equations.rows[:, :1]), equations.rows], dim=1)).Q
        remainder = equations.target - basis @ (basis.mT @ equations.target)
        estimate = _moments(equations.rows, remainder).tensor(identity, order=order)
    else:
        return None
    return decompose(estimate, order=order, generator=generator).factors


def _moments(rows: Float[Tensor, "n b"], target: Float[Tensor, "n b"]) -> HiddenMoments:
    """The moments of some neurons, in the span."""
    return HiddenMoments(rows, target.mean(0), target / len(target))


def _starts(
    equations: HiddenEquations, *, norm: float | None, tries: int, starts: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "s b b"]]:
    """The starts of every try; signs are fitted, unless the activation has a mirror symmetry."""
    length = 1.0 if norm is None else norm
    first = input_directions(equations, norm=length, generator=generator)
    mirrored = equations.activation.centre is not None
    if first is not None:
        first = length * first.unsqueeze(0)
        yield first if mirrored else equations.choose_signs(first)
    for _ in range(tries - (first is not None)):
        drawn = _random_starts(equations, starts, norm=norm, generator=generator)
        if mirrored:
            yield drawn
        elif first is None:
            yield equations.choose_signs(drawn)
        else:
            half = starts // 2
            yield torch.cat([equations.choose_signs(drawn[half:]), first * drawn[:half, :, :1].sign()])


def _random_starts(
    equations: HiddenEquations, starts: int, *, norm: float | None, generator: torch.Generator
) -> Float[Tensor, "s b b"]:
    """Uniform directions of the known length, or of a random one for each start."""
    like, side = equations.rows, equations.rows.shape[1]
    drawn = draws.gaussian((starts, side, side), generator=generator, like=like)
    drawn = normalize(drawn, dim=-1)
    if norm is not None:
        return norm * drawn
    low, high = _LENGTHS
    exponent = draws.uniform((starts, 1, 1), generator=generator, like=like)
    return drawn * low * (high / low) ** exponent


def _recover_from_outputs(
    observation: Observation, batch: int, norm: float | None, labels: Sequence[float] | None, generator: torch.Generator
) -> Reconstruction:
    """The batch from g alone, by one start."""
    length = 1.0 if norm is None else norm
    start = tensor_attack.reconstruct(
        observation, batch=batch, source="outputs", norm=length, labels=labels, generator=generator
    )
    solutions = solve(OutputEquations.from_observation(observation), start.inputs.unsqueeze(0), norm=norm)
    return _reconstruction(observation, solutions.points[0], solutions.residuals[0], labels)


def _reconstruction(
    observation: Observation, inputs: Tensor, residuals: Tensor, labels: Sequence[float] | None
) -> Reconstruction:
    """A batch with the signs that its labels decide, its labels and its certificate."""
    outputs_only = observation.hidden is None
    signs, ambiguities = symmetries.signs_from_labels(observation, inputs, residuals, labels, outputs_seen=outputs_only)
    inputs, residuals = signs.unsqueeze(-1) * inputs, signs * residuals
    # The certificate is for the layer whose equations were solved: G is m times smaller than g, so that an error in G
    # would not show in a misfit over both.
    equations = (OutputEquations if outputs_only else HiddenEquations).from_observation(observation)
    misfit = equations.misfit(inputs, residuals)
    return Reconstruction(inputs, residuals, observation.labels(inputs, residuals), misfit, ambiguities)


def _ambiguities(observation: Observation, found: Reconstruction, labels: Sequence[float] | None) -> tuple[str, ...]:
    """Ambiguities that a small misfit does not exclude: inputs with residual 0, equal inputs, impossible labels."""
    inputs, sizes = found.inputs, found.inputs.norm(dim=-1)
    values, slopes = observation.activation.derivatives(observation.weights @ inputs.mT, order=1)
    if observation.hidden is not None:
        share, target = slopes.norm(dim=0) * sizes / len(observation.weights), observation.hidden.norm()
    else:
        assert observation.outputs is not None
        share, target = values.norm(dim=0), observation.outputs.norm()
    # If a gradient is known to a relative error c, an input with share s of it is known to c / s, two equal ones to √c.
    rounding = certificate_threshold(inputs.dtype) ** 0.5
    distances = torch.cdist(inputs, inputs, compute_mode="donot_use_mm_for_euclid_dist")
    if observation.activation.centre is not None:
        mirrored = torch.cdist(inputs, -inputs, compute_mode="donot_use_mm_for_euclid_dist")
        distances = torch.minimum(distances, mirrored)
    equal = (distances <= rounding * (sizes + sizes.unsqueeze(-1))).triu(1)
    conditions = {
        "an input without a residual may be any other": (found.residuals.abs() * share <= rounding * target).any(),
        "two inputs are equal, and only the sum of their residuals is determined": equal.any(),
        "no batch was found whose labels are possible ones": not symmetries.labels_allowed(found, labels),
    }
    return tuple(word for word, holds in conditions.items() if bool(holds))
