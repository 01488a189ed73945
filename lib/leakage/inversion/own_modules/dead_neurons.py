r"""Several inputs of a ReLU layer, separated by the neurons that are dead for one of them.

M is the gradient of the first layer, a row for each neuron, and V a basis of the span of the $\tilde x_i = (x_i, 1)$.
Then $C = M V = \Delta^\top U$: the rows of U are $u_i$ with $\tilde x_i = V u_i$, and $\delta_{ij}$, the derivative of
the loss by neuron j at input i, is 0 if the neuron is dead there. The dual vector $q_i$ of input i, $u_k^\top q_i = 0$
for all $k \ne i$, gives $C q_i = \delta_i$ up to scale: it is orthogonal to every row whose neuron is dead for i. So
B - 1 of these rows give $q_i$, and all q give U, for any loss and any layers above.
"""

from collections.abc import Iterator
from itertools import combinations, islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import draws
from leakage.inversion.own_modules.equations import ModuleEquations

MAX_BATCH = 12
"""The largest batch to look for: the number of draws grows as $2^B$."""
_TUPLES_AT_ONCE = 2048
_DRAWS = 240  # times 2^B: one is right for an input with the chance 2^(1 - B) where half of the neurons are dead
_DEAD = {torch.float32: 1e-5, torch.float64: 1e-9}  # slopes below, relative to the largest, are 0; rounding leaves less
_CLEAR = 100.0  # times `_DEAD`: from here on, slopes and singular values are not rounding
_SAME_DUAL = 1e-3  # sine of the angle below which two duals are one
_SPARE = 6  # candidates beyond B, since other rows with a common normal exist
_SELECTIONS = (30, 400)  # of B candidates, after each round of draws but the last, and after the last
_MOST_WRONG = 0.005  # of all neurons and inputs, by rounding in the true batch; wrong batches had 0.4


def separate_inputs(equations: ModuleEquations, *, generator: torch.Generator) -> Float[Tensor, "B d"] | None:
    r"""The inputs whose dead neurons are those of the gradient; `None` if no selection of duals gives any.

    1. Draw B - 1 rows of C; their normal is $q_i$ if all are dead for i. Keep the normals whose zeros a hyperplane
       separates best, as $[W, c]\, \tilde x_i = 0$ separates those of $q_i$.
    2. Of the selections of B normals, the one whose inputs switch on the right neurons, $[W, c]\, \tilde x_i > 0$
       where $\delta_{ij} \ne 0$, is the batch. The last coordinate 1 gives the lengths; without a bias they are 1.

    Source: SPEAR (Dimitrov et al. 2024), who draw normals in the same way and filter them by their sparsity. The
    hyperplane, and the least squares over all dead neurons, are ours.
    """
    first, basis = equations.first, equations.basis
    rows = first.rows @ basis
    sizes = rows.norm(dim=-1)
    rows = rows / sizes.amax()
    threshold = _DEAD[first.precision]
    alive = rows[sizes > _CLEAR * threshold * sizes.amax()]
    batch = equations.batch
    found, best, fewest = rows.new_zeros((0, batch)), None, len(rows) * batch + 1
    weights = first.weights @ basis
    rounds = -(-_DRAWS * 2**batch // _TUPLES_AT_ONCE) if len(alive) >= batch else 0
    for round_number in range(rounds):
        found = _best_normals(torch.cat([found, _normals(alive, threshold, generator)]), rows, weights, threshold)
        selections = islice(_candidates(found, rows, equations, threshold), _SELECTIONS[round_number == rounds - 1])
        for inputs, wrong in selections:
            if wrong < fewest:
                best, fewest = inputs, wrong
            if wrong <= _MOST_WRONG * rows.numel():
                return inputs
    return best


def _normals(rows: Float[Tensor, "n b"], threshold: float, generator: torch.Generator) -> Float[Tensor, "s b"]:
    """The normals of random selections of b - 1 rows."""
    size = rows.shape[1]
    if size == 1:
        return torch.ones_like(rows[:1])
    drawn = draws.integers(len(rows), (_TUPLES_AT_ONCE, size - 1), generator=generator, like=rows)
    _, sizes, right = torch.linalg.svd(normalize(rows[drawn], dim=-1), full_matrices=True)
    # If the neurons of all rows are dead for two inputs, the rows depend on each other and have no single normal.
    return right[sizes[:, -1] > _CLEAR * threshold, -1]


def _best_normals(
    normals: Float[Tensor, "s b"], rows: Float[Tensor, "m b"], weights: Float[Tensor, "m b"], threshold: float
) -> Float[Tensor, "c b"]:
    """The different normals whose zeros a hyperplane separates best, each fitted to all rows that it makes zero."""
    size = rows.shape[1]
    unit = normalize(rows, dim=-1) * (rows.norm(dim=-1, keepdim=True) > _CLEAR * threshold)
    alive = unit.any(1)
    # A neuron is on where W x > 0, so that a linear function of W predicts it with few errors, if the normal is right.
    on = torch.where((normals @ unit.mT).abs() > 10 * threshold, 1.0, -1.0).to(rows)
    correct = ((on @ torch.linalg.pinv(weights).mT @ weights.mT > 0) == (on > 0)).sum(1)
    unit, rows = unit[alive], rows[alive]
    kept = []
    for index in correct.argsort(descending=True, stable=True).tolist():
        normal = normals[index]
        if any(float(1 - (normal @ other).abs()) <= _SAME_DUAL**2 for other in kept):
            continue
        orthogonal = (unit @ normal).abs() <= 10 * threshold
        dead = rows[orthogonal]
        if size > 1:
            sizes = torch.linalg.svdvals(unit[orthogonal])
            if len(sizes) < size - 1 or not float(sizes[size - 2]) > _CLEAR * threshold:
                continue
            normal = torch.linalg.svd(dead, full_matrices=True).Vh[-1]
        if len(dead) < len(rows):
            kept.append(normal)
        if len(kept) == size + _SPARE:
            break
    return torch.stack(kept) if kept else normals[:0]


def _candidates(
    normals: Float[Tensor, "c b"], rows: Float[Tensor, "m b"], equations: ModuleEquations, threshold: float
) -> Iterator[tuple[Float[Tensor, "B d"], int]]:
    """The batch of every selection of normals, and for how many neurons it contradicts itself."""
    first = equations.first
    sizes = rows.norm(dim=-1, keepdim=True)
    known = (sizes > _CLEAR * threshold) | (sizes <= threshold)  # other neurons are neither alive nor dead for certain
    for selection in combinations(range(len(normals)), equations.batch):
        duals = normals[list(selection)].mT
        points, failed = torch.linalg.inv_ex(duals)
        if bool(failed) or not bool(points.isfinite().all()):
            continue
        extended = points @ equations.basis.mT
        on = ((rows @ duals).abs() > 10 * threshold * sizes) & (sizes > threshold)
        if first.biased:
            if not bool(extended[:, -1].abs().min() > 0):
                continue
            extended = extended / extended[:, -1:]
        else:
            extended = normalize(extended, dim=-1)
            agreement = ((first.weights @ extended.mT > 0) == on).double().mean(0)
            extended = torch.where(agreement < 0.5, -1.0, 1.0).to(extended).unsqueeze(-1) * extended
        wrong = int(((first.weights @ extended.mT > 0) != on).logical_and(known).sum())
        yield extended[:, : first.layer.in_features], wrong
