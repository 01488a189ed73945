r"""A batch from the gradient of a ReLU or leaky ReLU network, exactly, by finding its activation patterns.

In the span V of the batch the rows of the gradient are $C = m G V = A Z$, where $Z$ has the rows $z_i = r_i V^\top
x_i$ and $A_{ji}$ is 1 if neuron j is on for input i, otherwise the slope α. With B independent inputs all rows are
corners of a parallelepiped; the columns of $Z^{-1}$ are the linear functions that are α or 1 on each of them. The
search needs no estimate to start from, and does not tolerate noise in the gradient.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.attacks.gradient_inversion import span, symmetries
from leakage.attacks.gradient_inversion.nonlinear_least_squares import HiddenEquations
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction

MAX_BATCH = 16
"""The largest batch to look for: the number of draws grows as $2^B$."""
_DRAWS_AT_ONCE = 4096
_DRAWS = 40  # times 2^B, the mean number of draws until a column is found
_FIRST_CORNERS = 64  # on which most wrong functions fail; one that passes is checked on all
_TOLERANCE = 1e-6  # of values 0 and 1: rounding leaves 1e-10 in a badly conditioned batch
_SAME_CORNER = 1e-7  # relative distance below which two corners are one
_AMBIGUOUS = "an input that treats all neurons alike may be (-x, -r/α)"


def decode(
    observation: Observation,
    *,
    batch: int,
    norm: float,
    labels: Sequence[float] | None = None,
    generator: torch.Generator,
) -> Reconstruction:
    r"""Find the batch behind the gradient of the hidden layer of a piecewise linear network.

    Draw B corners. If input i switches all of them on, which has the chance $2^{-B}$, the solution of $C h = 1$ on
    them is the i-th column of $Z^{-1}$, and $C h$ is α or 1 on all rows. All B columns give A, and least squares gives
    Z; $x_i$ is along $\pm z_i$, with the sign that switches on the right neurons. An input that switches a leaky ReLU's
    neurons all on or all off has the gradient of its opposite, $-x_i$ with $-r_i/\alpha$; its label decides.

    Source: not in Wang et al.; to test candidates by the patterns they imply is the idea of SPEAR (Dimitrov et al.
    2024), which has the gradient of the biases, and directions instead of corners.

    Args:
        observation: the network, and the gradient of its hidden layer.
        batch: B, at most `MAX_BATCH`.
        norm: the length of all inputs, which the gradient does not determine.
        labels: the possible labels; see `symmetries`.
        generator: draws the sketch and the corners.

    Raises:
        ValueError: if the rank of the gradient is below B, or no batch explains it.
    """
    assert observation.hidden is not None
    basis = span.from_rows(observation.hidden, batch=batch, generator=generator).basis
    rows = len(observation.weights) * observation.hidden @ basis
    slope = float(observation.activation.derivatives(-rows.new_ones(1), order=1)[1])
    on = (rows @ slope_functions(rows, slope=slope, generator=generator)) > (1 + slope) / 2
    pattern = slope + (1 - slope) * on.to(rows)
    inputs = torch.linalg.lstsq(pattern, rows).solution @ basis.mT
    # A neuron is on where w·x > 0. Every neuron tells the sign of r, and all agree if the pattern is right.
    agreement = ((inputs @ observation.weights.mT > 0) == on.mT).to(rows).mean(-1)
    signs = torch.where(agreement < 0.5, -1.0, 1.0).to(rows)
    sizes = inputs.norm(dim=-1)
    inputs, residuals = (signs * norm / sizes).unsqueeze(-1) * inputs, signs * sizes / norm
    ambiguities = ()
    alike = on.all(0)
    if slope and bool(alike.any()):
        opposite = -inputs, -residuals / slope
        likelier, tied = symmetries.compare_labels(observation, (inputs, residuals), opposite, labels)
        likelier, tied = likelier & alike, tied & alike
        inputs = torch.where(likelier.unsqueeze(-1), opposite[0], inputs)
        residuals = torch.where(likelier, opposite[1], residuals)
        ambiguities = (_AMBIGUOUS,) if labels is None or bool(tied.any()) else ()
    misfit = HiddenEquations.from_observation(observation).misfit(inputs, residuals)
    return Reconstruction(inputs, residuals, observation.labels(inputs, residuals), misfit, ambiguities)


def slope_functions(rows: Float[Tensor, "m b"], *, slope: float, generator: torch.Generator) -> Float[Tensor, "b b"]:
    r"""The independent linear functions that are α or 1 on every row, as columns: $Z^{-1}$, in any order.

    Raises:
        ValueError: if fewer than b are found.
    """
    corners = _corners(rows)
    size = rows.shape[1]
    found = rows.new_zeros((0, size))
    for _ in range(-(-_DRAWS * 2**size // _DRAWS_AT_ONCE) if len(corners) >= size else 0):
        drawn = corners[torch.randint(len(corners), (_DRAWS_AT_ONCE, size), generator=generator, device=rows.device)]
        functions, failed = torch.linalg.solve_ex(drawn, rows.new_ones((_DRAWS_AT_ONCE, size)))
        functions = functions[(failed == 0) & functions.isfinite().all(-1)]
        for tested in (corners[:_FIRST_CORNERS], corners):
            values = functions @ tested.mT
            error = torch.minimum((values - 1).abs(), (values - slope).abs())
            functions = functions[(error < _TOLERANCE).all(-1)]
        found = _distinct(torch.cat([found, functions]))
        if len(found) >= size:
            break
    if len(found) != size or int(torch.linalg.matrix_rank(found)) < size:
        raise ValueError(
            f"`rows` are no corners of a parallelepiped: {len(found)} of {size} activation patterns found. The "
            "gradient is noisy, the batch has another size, or there are too few neurons."
        )
    return found.mT


def _corners(rows: Tensor) -> Tensor:
    """The different rows without the origin: neurons that are off for all inputs tell nothing."""
    rows = rows[rows.norm(dim=-1) > _SAME_CORNER * rows.norm(dim=-1).amax()]
    grid = (rows / (_SAME_CORNER * rows.abs().amax())).round()
    _, groups = grid.unique(dim=0, return_inverse=True)
    corners = rows.new_zeros((int(groups.max()) + 1, rows.shape[1]))
    corners[groups] = rows
    return corners


def _distinct(functions: Float[Tensor, "n b"]) -> Float[Tensor, "k b"]:
    """The functions without repetitions, of which there are few."""
    if not len(functions):
        return functions
    tolerance, kept = 10 * _TOLERANCE * functions.abs().amax(), []
    while len(functions):
        kept.append(functions[0])
        functions = functions[(functions - kept[-1]).abs().amax(-1) >= tolerance]
    return torch.stack(kept)
