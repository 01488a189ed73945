r"""A batch from the gradient of a ReLU or leaky ReLU network, exactly, by finding which neurons it switches on.

In the span V of the batch the rows of the gradient are $C = m G V = A Z$, where $Z$ has the rows $z_i = r_i V^\top
x_i$ and $A_{ji}$ is 1 if neuron j is on for input i, otherwise the slope α. With B independent inputs all rows lie on
the corners of a parallelepiped; the columns of $Z^{-1}$ are the linear functions that are α or 1 on every one of them.
No estimate is needed to start from, and noise in the gradient is not tolerated.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion import span, symmetries
from leakage.attacks.gradient_inversion.equations import HiddenEquations
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction

MOST_INPUTS = 16
"""The largest batch that is looked for: the number of draws grows as $2^B$."""
_CHUNK = 4096  # draws at a time
_DRAWS = 40  # times 2^B, the mean number of draws until a column is found
_WITNESSES = 64  # rows that refute a wrong function; one that passes is checked on all
_TOLERANCE = 1e-6  # of values 0 and 1: rounding leaves 1e-10 in a badly conditioned batch
_SAME = 1e-7  # relative distance below which two corners are one
_ALIKE = "an input that treats all neurons alike may be (-x, -r/α)"


def decode(
    observation: Observation,
    *,
    batch: int,
    norm: float | None = None,
    labels: Sequence[float] | None = None,
    generator: torch.Generator,
) -> Reconstruction:
    r"""Find the batch behind the gradient of the hidden layer of a piecewise linear network.

    Draw B corners. If input i switches all of them on, which has the chance $2^{-B}$, the solution of $C h = 1$ on
    them is the i-th column of $Z^{-1}$, and $C h$ is α or 1 on all rows. Once all B columns are found, A is known, and
    least squares gives Z; $x_i$ lies along $\pm z_i$, with the sign that switches on the neurons it should. An input
    that switches a leaky ReLU's neurons all on or all off has the gradient of one that does the other, $-x_i$ with
    $-r_i/\alpha$; its label decides.

    Source: not in Wang et al.; testing candidates by the switches they imply is the idea of SPEAR (Dimitrov et al.
    2024), which has the gradient of the biases and directions in place of corners.

    Args:
        observation: the network and its gradient.
        batch: B, at most `MOST_INPUTS`.
        norm: t, the length of all inputs, which the gradient does not tell and the caller must.
        labels: the values that labels may have; `None` for ±1, and for 0 and 1 if the loss is logistic.
        generator: for the sketch and the draws.

    Raises:
        ValueError: if the activation is not piecewise linear, `hidden` is missing, `batch` is too large for the
            gradient or for this search, `norm` is missing or not positive and finite, `labels` is empty or not finite,
            or no batch explains the gradient.
    """
    if observation.activation.degree != 1 or observation.activation.smooth or observation.hidden is None:
        name, seen = observation.activation.name, observation.hidden is not None
        raise ValueError(f"`observation` must have `hidden` of a ReLU or leaky ReLU, got {name}, hidden: {seen}.")
    arguments.count("batch", batch, least=1, most=MOST_INPUTS)
    if norm is None:
        raise ValueError(
            f"`norm` must be the length of the inputs for {observation.activation.name}, as (s·x, r/s) has the "
            "gradient of (x, r); got None, try 1.0 for normalised ones."
        )
    norm = arguments.number("norm", norm, above=0)
    symmetries.check(labels)
    basis = span.from_rows(observation.hidden, batch=batch, generator=generator).basis
    rows = len(observation.weights) * observation.hidden @ basis
    slope = float(observation.activation.derivatives(-rows.new_ones(1), order=1)[1])
    on = (rows @ slope_functions(rows, slope=slope, generator=generator)) > (1 + slope) / 2
    pattern = slope + (1 - slope) * on.to(rows)
    inputs = torch.linalg.lstsq(pattern, rows).solution @ basis.mT
    # A neuron is on where w·x > 0; every one of them tells the sign of r, and they agree if the pattern is right.
    agreement = ((inputs @ observation.weights.mT > 0) == on.mT).to(rows).mean(-1)
    signs = torch.where(agreement < 0.5, -1.0, 1.0).to(rows)
    sizes = inputs.norm(dim=-1)
    inputs, residuals = (signs * norm / sizes).unsqueeze(-1) * inputs, signs * sizes / norm
    ambiguous = ()
    alike = on.all(0)
    if slope and bool(alike.any()):
        swapped, tied = symmetries.compare_labels(
            observation, (inputs, residuals), (-inputs, -residuals / slope), labels
        )
        swapped, tied = swapped & alike, tied & alike
        inputs = torch.where(swapped.unsqueeze(-1), -inputs, inputs)
        residuals = torch.where(swapped, -residuals / slope, residuals)
        ambiguous = (_ALIKE,) if labels is None or bool(tied.any()) else ()
    certificate = HiddenEquations.from_observation(observation).misfit(inputs, residuals)
    return Reconstruction(inputs, residuals, observation.labels(inputs, residuals), certificate, ambiguous)


def slope_functions(rows: Float[Tensor, "m b"], *, slope: float, generator: torch.Generator) -> Float[Tensor, "b b"]:
    r"""The independent linear functions that are α or 1 on every row, as columns: $Z^{-1}$, in any order.

    Raises:
        ValueError: if fewer than b are found.
    """
    corners = _corners(rows)
    size = rows.shape[1]
    found = rows.new_zeros((0, size))
    for _ in range(-(-_DRAWS * 2**size // _CHUNK) if len(corners) >= size else 0):
        drawn = corners[torch.randint(len(corners), (_CHUNK, size), generator=generator, device=rows.device)]
        ones = rows.new_ones((_CHUNK, size))
        functions, failed = torch.linalg.solve_ex(drawn, ones)
        functions = functions[(failed == 0) & functions.isfinite().all(-1)]
        for witnesses in (corners[:_WITNESSES], corners):
            values = functions @ witnesses.mT
            off = torch.minimum((values - 1).abs(), (values - slope).abs())
            functions = functions[(off < _TOLERANCE).all(-1)]
        found = _distinct(torch.cat([found, functions]))
        if len(found) >= size:
            break
    if len(found) != size or int(torch.linalg.matrix_rank(found)) < size:
        raise ValueError(
            f"`rows` are no corners of a parallelepiped: {len(found)} of {size} switches found. The gradient is noisy, "
            "the batch has another size, or there are too few neurons."
        )
    return found.mT


def _corners(rows: Tensor) -> Tensor:
    """The different rows without the origin: neurons that all inputs switch off say nothing."""
    rows = rows[rows.norm(dim=-1) > _SAME * rows.norm(dim=-1).amax()]
    grid = (rows / (_SAME * rows.abs().amax())).round()
    _, groups = grid.unique(dim=0, return_inverse=True)
    corners = rows.new_zeros((int(groups.max()) + 1, rows.shape[1]))
    corners[groups] = rows
    return corners


def _distinct(functions: Float[Tensor, "n b"]) -> Float[Tensor, "k b"]:
    """The functions without repetitions: there are few that differ, and nearly all repeat one of these."""
    if not len(functions):
        return functions
    apart, kept = 10 * _TOLERANCE * functions.abs().amax(), []
    while len(functions):
        kept.append(functions[0])
        functions = functions[(functions - kept[-1]).abs().amax(-1) >= apart]
    return torch.stack(kept)
