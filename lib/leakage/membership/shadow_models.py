r"""The shadow models of a target: all other models, except its partner where models come in complementary pairs.

Tables are (..., models, points). Results have a row for each target: every model, or the one `target` asked for. A sum
over shadow models is a product with `shadow_matrix`. It skips the target instead of subtracting it, because the
rounding error would depend on its membership.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from leakage.threads import map_threads

_NUMBERS_IN_BLOCK = 2**18  # in a float64 table of one call in `map_columns`: 2 MiB, which a core's cache holds


def shadow_matrix(
    models: int,
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
    device: torch.device | None = None,
) -> Float64[Tensor, "targets models"]:
    """$W_{ij} = 1$ where model j is a shadow model of target i, else 0."""
    matrix = 1 - torch.eye(models, dtype=torch.float64, device=device)
    if partner is not None:
        matrix.scatter_(1, partner.long().unsqueeze(-1), 0)
    return matrix[target_rows(target)]


def target_rows(target: int | None) -> slice:
    """The rows of a table of all models that belong to the targets."""
    return slice(None) if target is None else slice(target, target + 1)


def shadow_means(
    values: Float64[Tensor, "*e models points"],
    kind: Bool[Tensor, "models points"] | Float64[Tensor, "models points"],
    matrix: Float64[Tensor, "targets models"],
) -> tuple[Float64[Tensor, "targets points"], Float64[Tensor, "*e targets points"]]:
    """The number of shadow models of one kind and the mean of their (finite) values; 0 where there is none."""
    weight = kind.double()
    count = matrix @ weight
    return count, matrix @ (values * weight) / count.clamp_min(1)


def map_columns(function: Callable[..., tuple[Tensor, ...]], *tables: Tensor) -> list[Tensor]:
    """The results of a function that treats columns independently, called on some columns at a time to save memory.

    Within `threads.use_threads` threads share the calls.
    """
    columns = tables[0].shape[-1]
    size = max(1, _NUMBERS_IN_BLOCK // tables[0][..., 0].numel())
    results: list[Tensor] = []

    def fill(first: int) -> None:
        some = slice(first, first + size)
        parts = function(*(table[..., some] for table in tables))
        results.extend(part.new_empty(*part.shape[:-1], columns) for part in parts[len(results) :])
        for whole, part in zip(results, parts, strict=True):
            whole[..., some] = part

    fill(0)  # the first call tells the shapes
    map_threads(fill, range(size, columns, size))
    return results
