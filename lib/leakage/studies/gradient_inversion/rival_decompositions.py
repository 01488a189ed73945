r"""Usual decompositions of a tensor, to be compared with those of `decompose`: deflation and alternating least squares.

Each gives unit vectors for a `decompose.Problem`, whose weights and residuals `decompose.decompose` then finds. Nothing
in an attack relies on them.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from tensorly.decomposition import parafac
from torch import Tensor

from leakage.attacks.gradient_inversion import decompose
from leakage.attacks.gradient_inversion.decompose import Problem, assemble, powers

_POWER_STEPS = 100
_ALS_SWEEPS = 1000


def deflation(problem: Problem) -> Float[Tensor, "1 *b k k"]:
    r"""Power iterations $u \leftarrow T(I, u, \dots, u)$ and subtraction, term by term.

    It finds the terms only if they are orthogonal. The starts are for each term.
    """
    left, found = problem.slices, []
    for _ in range(problem.side):
        vector = problem.unit_vectors((problem.starts, *left.shape[:-3]))
        for _ in range(_POWER_STEPS):
            vector = torch.nn.functional.normalize(_apply(left, vector, problem.order), dim=-1)
        sizes = (vector * _apply(left, vector, problem.order)).sum(-1)
        best = sizes.abs().argmax(0)[None]
        vector = torch.take_along_dim(vector, best.unsqueeze(-1), 0)[0]
        size = sizes.gather(0, best)[0]
        term = assemble(vector.unsqueeze(-2), size.unsqueeze(-1), order=problem.order)
        left = left - term.reshape(left.shape)
        found.append(vector)
    return torch.stack(found, -2).unsqueeze(0)


def als(problem: Problem) -> Float[Tensor, "starts *b k k"]:
    """Alternating least squares of TensorLy on the CPU, which knows nothing of the symmetry."""
    flat, side, order = problem.slices, problem.side, problem.order
    starts = torch.randint(2**31, (problem.starts,), generator=problem.generator, device=flat.device).tolist()
    tensors = flat.reshape(-1, *[side] * order).cpu().numpy()

    def fit(tensor: np.ndarray, start: int) -> Tensor:
        found = parafac(
            tensor, side, n_iter_max=_ALS_SWEEPS, tol=1e-12, init="random", normalize_factors=True, random_state=start
        )
        return torch.as_tensor(found.factors[0].T)

    found = [fit(tensor, start) for start in starts for tensor in tensors]
    vectors = torch.stack(found).reshape(problem.starts, *flat.shape[:-3], side, side)
    return torch.nn.functional.normalize(vectors.to(flat), dim=-1)


def _apply(slices: Float[Tensor, "*b k k s"], vector: Float[Tensor, "*s k"], order: int) -> Float[Tensor, "*s k"]:
    r"""$T(I, u, \dots, u)$."""
    return torch.einsum("...ijs,...j,...s->...i", slices, vector, powers(vector.unsqueeze(-2), order - 2).squeeze(-2))


METHODS: Mapping[str, Callable[[Problem], Tensor]] = {**decompose.METHODS, "deflation": deflation, "als": als}
"""All methods by name."""
