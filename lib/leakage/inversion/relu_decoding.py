r"""Recover a batch exactly from the gradient of a ReLU or leaky ReLU network, by finding its activation patterns.

Let G be the gradient of the hidden weights of m neurons, and let the columns of V span the batch. Then
$C = m G V = A Z$, where $Z$ has the rows $z_i = r_i V^\top x_i$, and $A_{ji}$ is 1 if neuron j is on for input i,
otherwise the slope α. If the B inputs are independent, all rows of C are corners of a parallelepiped, and each column
of $Z^{-1}$ is a linear function that has the value α or 1 at every corner. The attack searches for these functions. It
needs no estimate to start from, but the gradient must have no noise.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import draws
from leakage.inversion import span, symmetries
from leakage.inversion.nonlinear_least_squares import HiddenEquations
from leakage.inversion.observation import Observation, Reconstruction

MAX_BATCH = 16
"""The largest batch for which the search is affordable: the number of draws grows as $2^B$."""
_DRAWS_AT_ONCE = 4096
_MAX_DRAWS = 40  # in units of 2^B: a column is found after 2^B draws on average
_FIRST_CORNERS = 64  # tested first, where most wrong functions fail; a function that passes is tested on all corners
_TOLERANCE = 1e-6  # how far a value may be from α or 1: rounding leaves 1e-10 in a badly conditioned batch
_SAME_CORNER = 1e-7  # relative distance below which two corners count as one
_AMBIGUOUS = "an input that turns all neurons on or all off may be (-x, -r/α)"


def decode(
    observation: Observation,
    *,
    batch: int,
    norm: float,
    labels: Sequence[float] | None = None,
    generator: torch.Generator,
) -> Reconstruction:
    r"""Find the batch behind the gradient of the hidden layer of a piecewise linear network.

    1. Draw B corners, and find h with $C h = 1$ at all of them. If input i turns on the neurons of these corners, which
       has probability $2^{-B}$, then h is the i-th column of $Z^{-1}$, and $C h$ is α or 1 on all rows. Repeat until
       all B columns are found; they give A.
    2. Least squares gives Z from A and C. The input $x_i$ is parallel to $V z_i$, and its sign is the one that turns on
       the right neurons. The gradient does not determine its length, `norm`.
    3. An input that turns the neurons of a leaky ReLU all on or all off has the same gradient as its opposite, $-x_i$
       with $-r_i/\alpha$. The label decides between them.

    Source: ours, not in Wang et al. The idea of testing candidates by the activation patterns that they imply is from
    SPEAR (Dimitrov et al. 2024), which also uses the gradient of the biases, and has directions instead of corners.
    """
    assert observation.hidden is not None
    basis = span.from_rows(observation.hidden, batch=batch, generator=generator).basis
    rows = len(observation.weights) * observation.hidden @ basis
    slope = float(observation.activation.derivatives(-rows.new_ones(1), order=1)[1])
    on = (rows @ slope_functions(rows, slope=slope, generator=generator)) > (1 + slope) / 2
    pattern = slope + (1 - slope) * on.to(rows)
    inputs = torch.linalg.pinv(pattern) @ rows @ basis.mT  # `lstsq` needs full rank on a GPU
    # `inputs` are r_i x_i so far: w·(r_i x_i) > 0 at the neurons that are on if r_i > 0, at all others if r_i < 0.
    agreement = ((inputs @ observation.weights.mT > 0) == on.mT).to(rows).mean(-1)
    signs = torch.where(agreement < 0.5, -1.0, 1.0).to(rows)
    lengths = inputs.norm(dim=-1)
    inputs, residuals = (signs * norm / lengths).unsqueeze(-1) * inputs, signs * lengths / norm
    ambiguities = ()
    all_on = on.all(0)  # or all off: the search has C h = 1 at B neurons, so it finds such an input as all on
    if slope and bool(all_on.any()):
        opposite = -inputs, -residuals / slope
        opposite_likelier, tied = symmetries.compare_labels(observation, (inputs, residuals), opposite, labels)
        opposite_likelier, tied = opposite_likelier & all_on, tied & all_on
        inputs = torch.where(opposite_likelier.unsqueeze(-1), opposite[0], inputs)
        residuals = torch.where(opposite_likelier, opposite[1], residuals)
        ambiguities = (_AMBIGUOUS,) if labels is None or bool(tied.any()) else ()
    misfit = HiddenEquations.from_observation(observation).misfit(inputs, residuals)
    return Reconstruction(inputs, residuals, observation.labels(inputs, residuals), misfit, ambiguities)


def slope_functions(rows: Float[Tensor, "m b"], *, slope: float, generator: torch.Generator) -> Float[Tensor, "b b"]:
    r"""The b linear functions that have the value α or 1 on every row: the columns of $Z^{-1}$, unordered."""
    corners = _corners(rows)
    size = rows.shape[1]
    found = rows.new_zeros((0, size))
    for _ in range(-(-_MAX_DRAWS * 2**size // _DRAWS_AT_ONCE) if len(corners) >= size else 0):
        drawn = corners[draws.integers(len(corners), (_DRAWS_AT_ONCE, size), generator=generator, like=rows)]
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
            f"`rows` must be corners of a parallelepiped: {len(found)} of {size} activation patterns found. The "
            "gradient has noise, the batch has another size, or the layer has too few neurons."
        )
    return found.mT


def _corners(rows: Tensor) -> Tensor:
    """The distinct rows except zero: a neuron that is off for every input says nothing about them."""
    rows = rows[rows.norm(dim=-1) > _SAME_CORNER * rows.norm(dim=-1).amax()]
    grid = (rows / (_SAME_CORNER * rows.abs().amax())).round()
    _, groups = grid.unique(dim=0, return_inverse=True)
    corners = rows.new_zeros((int(groups.max()) + 1, rows.shape[1]))
    corners[groups] = rows
    return corners


def _distinct(functions: Float[Tensor, "n b"]) -> Float[Tensor, "k b"]:
    """Each function once. The loop is short, because few functions are different."""
    if not len(functions):
        return functions
    tolerance, kept = 10 * _TOLERANCE * functions.abs().amax(), []
    while len(functions):
        kept.append(functions[0])
        functions = functions[(functions - kept[-1]).abs().amax(-1) >= tolerance]
    return torch.stack(kept)
