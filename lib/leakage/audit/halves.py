"""Which rows each model of an audit is trained on, from whatever generator a caller has, and which rows are alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from leakage.audit.notes import twins
from leakage.data.membership_splits import complementary_halves


def stream_of(generator: Any) -> torch.Generator:
    """A generator of PyTorch on the CPU: the one given, one seeded by NumPy's, or one with seed 0.

    Raises:
        TypeError: if it is neither.
    """
    if generator is None:
        return torch.Generator().manual_seed(0)
    if isinstance(generator, np.random.Generator):
        return torch.Generator().manual_seed(int(generator.integers(2**63)))
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise TypeError(
            "`generator` must be a torch.Generator on the CPU or a numpy.random.Generator, got "
            f"{type(generator).__name__}; try numpy.random.default_rng(0)."
        )
    return generator


def drawn(rows: int, models: int, draws: torch.Generator) -> Bool[Tensor, "models rows"]:
    """Random halves and their complements, of four rows or more.

    Raises:
        ValueError: if there are too few rows, or the number of models is odd.
    """
    if rows < 4:
        raise ValueError(f"`X` must have four rows or more, two for each half, got {rows}.")
    return complementary_halves(rows, models, generator=draws)[0]


def of_duplicates(X: Any, labels: Sequence[Any], member: Bool[Tensor, "models rows"]) -> list[str]:
    """A note where rows that are equal, with equal labels, are members and outsiders of one model."""
    keys = [*zip(_contents(X), map(str, labels), strict=True)]
    numbers = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    if len(numbers) == len(keys):
        return []
    return twins(np.array([numbers[key] for key in keys]), member, "the same content and label as")


def _contents(X: Any) -> list[Any]:
    """Something equal for equal rows."""
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if hasattr(X, "tocsr"):
        rows = X.tocsr().copy()
        rows.sum_duplicates()
        parts = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in parts]
    found = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    if found.dtype.hasobject:
        return [repr(row.tolist() if isinstance(row, np.ndarray) else row) for row in found]
    return [row.tobytes() for row in np.ascontiguousarray(found)]
