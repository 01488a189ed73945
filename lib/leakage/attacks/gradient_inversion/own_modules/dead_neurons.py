r"""Several inputs of a ReLU layer, told apart by the neurons that are dead for one of them.

In the span V of the $\tilde x_i = (x_i, 1)$ the gradient of the first layer is $C = M V = \Delta^\top U$, with
$\tilde x_i = V u_i$ and $\Delta_{ij} = \delta_{ij} = 0$ wherever neuron j is dead for input i. The dual vector $q_i$ of
input i, $u_k^\top q_i = 0$ for all $k \ne i$, gives $C q_i = \delta_i$ up to scale: it is orthogonal to every row whose
neuron is dead for i. So B - 1 of these rows give $q_i$, and all q give U, whatever the loss and the layers above are.
"""

from collections.abc import Iterator
from itertools import combinations, islice

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.attacks.gradient_inversion.own_modules.equations import ModuleEquations

MOST_INPUTS = 12
"""The largest batch that is looked for: the number of draws grows as $2^B$."""
_CHUNK = 2048  # draws at a time
_DRAWS = 240  # times 2^B: one is right for an input with the chance 2^(1 - B) where half of the neurons are dead
_ZERO = {torch.float32: 1e-5, torch.float64: 1e-9}  # of the largest slope: what counts as dead; rounding leaves less
_CLEAR = 100.0  # times that: the least singular value of rows with a single normal
_SAME = 1e-3  # sine of the angle below which two duals are one
_SPARE = 6  # candidates beyond B, since rows that are alike in another way have a common normal, too
_SELECTIONS = (30, 400)  # of B candidates, after each look but the last and after the last
_SLIPS = 0.005  # of all switches, which rounding may turn in the true batch; wrong ones that were seen turn 0.4


def separate_inputs(equations: ModuleEquations, *, generator: torch.Generator) -> Float[Tensor, "B d"] | None:
    r"""The inputs whose dead neurons are those of the gradient; `None` if no selection of duals gives any.

    1. Draw B - 1 rows of C; their normal is $q_i$ if all are dead for i. Keep the normals whose zeros are best told by
       a hyperplane, as $[W, c]\, \tilde x_i = 0$ tells those of $q_i$.
    2. Of the selections of B normals, the one whose inputs switch on the neurons it says, $[W, c]\, \tilde x_i > 0$
       where $\delta_{ij} \ne 0$, is the batch. The last coordinate 1 gives the lengths; without a bias they are 1.

    Source: SPEAR (Dimitrov et al. 2024), who draw normals in the same way and filter them by their sparsity. The
    hyperplane, and the least squares over all dead neurons, are ours.
    """
    first, basis = equations.first, equations.basis
    rows = first.rows @ basis
    sizes = rows.norm(dim=-1)
    rows = rows / sizes.amax()
    zero = _ZERO[first.precision]
    alive = rows[sizes > _CLEAR * zero * sizes.amax()]
    batch = equations.batch
    found, best, fewest = rows.new_zeros((0, batch)), None, len(rows) * batch + 1
    reach = first.weights @ basis
    looks = -(-_DRAWS * 2**batch // _CHUNK) if len(alive) >= batch else 0
    for look in range(looks):
        found = _likeliest(torch.cat([found, _normals(alive, zero, generator)]), rows, reach, zero)
        for inputs, wrong in islice(_batches(found, rows, equations, zero), _SELECTIONS[look == looks - 1]):
            if wrong < fewest:
                best, fewest = inputs, wrong
            if wrong <= _SLIPS * rows.numel():
                return inputs
    return best


def _normals(rows: Float[Tensor, "n b"], zero: float, generator: torch.Generator) -> Float[Tensor, "s b"]:
    """The normals of random selections of b - 1 rows."""
    size = rows.shape[1]
    if size == 1:
        return torch.ones_like(rows[:1])
    drawn = torch.randint(len(rows), (_CHUNK, size - 1), generator=generator, device=rows.device)
    picked = torch.nn.functional.normalize(rows[drawn], dim=-1)
    _, sizes, right = torch.linalg.svd(picked, full_matrices=True)
    # Rows that are dead for two inputs depend on each other and have no single normal.
    return right[sizes[:, -1] > _CLEAR * zero, -1]


def _likeliest(
    normals: Float[Tensor, "s b"], rows: Float[Tensor, "m b"], reach: Float[Tensor, "m b"], zero: float
) -> Float[Tensor, "c b"]:
    """The different normals whose zeros a hyperplane tells best, each fitted again to all rows that it switches off."""
    size = rows.shape[1]
    unit = torch.nn.functional.normalize(rows, dim=-1) * (rows.norm(dim=-1, keepdim=True) > _CLEAR * zero)
    alive = unit.any(1)
    # Which neurons are on is the sign of W x, so that a linear fit of it has few errors, unless the normal is wrong.
    on = torch.where((normals @ unit.mT).abs() > 10 * zero, 1.0, -1.0).to(rows)
    told = ((on @ torch.linalg.pinv(reach).mT @ reach.mT > 0) == (on > 0)).sum(1)
    unit, rows = unit[alive], rows[alive]
    kept = []
    for index in told.argsort(descending=True, stable=True).tolist():
        fitted = normals[index]
        if any(float(1 - (fitted @ other).abs()) <= _SAME**2 for other in kept):
            continue
        switched = (unit @ fitted).abs() <= 10 * zero
        dead = rows[switched]
        if size > 1:
            sizes = torch.linalg.svdvals(unit[switched])
            if len(sizes) < size - 1 or not float(sizes[size - 2]) > _CLEAR * zero:
                continue
            fitted = torch.linalg.svd(dead, full_matrices=True).Vh[-1]
        if len(dead) < len(rows):
            kept.append(fitted)
        if len(kept) == size + _SPARE:
            break
    return torch.stack(kept) if kept else normals[:0]


def _batches(
    normals: Float[Tensor, "c b"], rows: Float[Tensor, "m b"], equations: ModuleEquations, zero: float
) -> Iterator[tuple[Float[Tensor, "B d"], int]]:
    """The batch of every selection of normals, and on how many neurons it contradicts itself."""
    first = equations.first
    sizes = rows.norm(dim=-1, keepdim=True)
    told = (sizes > _CLEAR * zero) | (sizes <= zero)  # what is between is neither alive nor dead
    for selection in combinations(range(len(normals)), equations.batch):
        duals = normals[list(selection)].mT
        points, failed = torch.linalg.inv_ex(duals)
        if bool(failed) or not bool(points.isfinite().all()):
            continue
        full = points @ equations.basis.mT
        on = ((rows @ duals).abs() > 10 * zero * sizes) & (sizes > zero)
        if first.biased:
            if not bool(full[:, -1].abs().min() > 0):
                continue
            full = full / full[:, -1:]
        else:
            full = torch.nn.functional.normalize(full, dim=-1)
            agreement = ((first.weights @ full.mT > 0) == on).double().mean(0)
            full = torch.where(agreement < 0.5, -1.0, 1.0).to(full).unsqueeze(-1) * full
        wrong = int(((first.weights @ full.mT > 0) != on).logical_and(told).sum())
        yield full[:, : first.layer.in_features], wrong
