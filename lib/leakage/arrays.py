"""Whatever a user hands in becomes an array here, rightly, or is refused by the name of its argument.

It may be a list or tuple (also of tensors), an array, a tensor on any device, in any precision or layout, a data frame
or a sparse matrix. Refusals are `TypeError` for other things than numbers and else `ValueError`.
"""

import numbers
from collections.abc import Hashable
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from sklearn.utils import indexable
from sklearn.utils.validation import _num_samples
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from leakage import arguments

_MOST_DENSE = 2**30  # numbers of a sparse matrix that is written out
_MOST_EXACT = 2**53  # whole numbers up to it are float64
_DTYPES = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
_MISSING_TYPES = {"NoneType", "NAType", "NaTType"}  # of Python and pandas
_MISSING_TEXTS = {"None", "nan", "NaN", "NaT", "<NA>", ""}


def to_array(name: str, values: Any) -> np.ndarray:
    """The values as an array of any type; masked ones become NaN or None."""
    try:
        if isinstance(values, Tensor):
            if values.is_nested:
                raise ValueError(f"`{name}` must have rows of equal lengths, got a nested tensor; pad its rows.")
            return _to_plain(values).numpy()
        if hasattr(values, "toarray"):
            if (size := int(np.prod(values.shape))) > _MOST_DENSE:
                raise ValueError(f"{size:,} numbers are too many to write out, zeros included")
            return np.asarray(values.toarray())
        if isinstance(values, np.ma.MaskedArray):
            gap: Any = np.nan if values.dtype.kind == "f" else None
            return np.where(np.ma.getmaskarray(values), gap, values.data)
        return _from_parts(name, values) if isinstance(values, list | tuple) else np.asarray(values)
    except Exception as error:  # other libraries raise almost anything
        own = str(error).startswith(f"`{name}`")
        raise ValueError(str(error) if own else f"`{name}` must be an array, a tensor or a list: {error}.") from error


def _to_plain(values: Tensor) -> Tensor:
    """A dense tensor on the CPU, without a gradient; half precision, which NumPy may not have, as float32."""
    near = values.detach().to_dense() if values.layout != torch.strided else values.detach()
    near = (near.dequantize() if near.is_quantized else near).cpu().resolve_conj().resolve_neg()
    return near.float() if near.is_floating_point() and near.itemsize < 4 else near


def _from_parts(name: str, values: Any) -> np.ndarray:
    """An array from a list. NumPy reads no tensor on a GPU or with a gradient, and takes a sparse row for one thing."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        parts = [to_array(name, part) for part in values]
        if len({part.shape for part in parts}) > 1:
            raise ValueError(f"`{name}` must have rows of equal lengths, got others.") from None
        return np.stack(parts)
    nested = (isinstance(part, Tensor | np.ndarray) or hasattr(part, "toarray") for part in values)
    if array.dtype.hasobject and any(nested):
        return np.stack([np.atleast_1d(to_array(name, part).squeeze()) for part in values])
    return array


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, or what pandas has for them."""
    return type(value).__name__ in _MISSING_TYPES or (isinstance(value, numbers.Number | Decimal) and value != value)


def to_tensor(name: str, values: Any) -> Tensor:
    """Numbers or booleans as a tensor on the CPU; of an array whole numbers become int64, half precision float32."""
    array = to_array(name, values)
    if isinstance(values, Tensor) and array.dtype.kind in _DTYPES:
        return _to_plain(values)
    if array.dtype.hasobject:
        array = _from_objects(name, array)
    if array.dtype.kind not in _DTYPES:
        kinds = ", ".join(sorted({type(part).__name__ for part in array.ravel().tolist()} - _MISSING_TYPES))
        raise TypeError(
            f"`{name}` must hold {'real ' * (array.dtype.kind == 'c')}numbers, got {kinds}; convert numbers as text by "
            "`.astype(float)`, truth values by a comparison such as `== 'True'`, classes by "
            "`numpy.unique(classes, return_inverse=True)`."
        )
    dtype = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else _DTYPES[array.dtype.kind]
    with np.errstate(over="ignore"):
        # PyTorch takes no other order of bytes, and warns of an array that must not be written to.
        found = np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
    wide = array.dtype.itemsize >= 8 and array.dtype != found.dtype
    if wide and bool((((found < 0) != (array < 0)) | (np.isinf(found) != np.isinf(array))).any()):
        raise ValueError(f"`{name}` must hold numbers that {np.dtype(dtype)} can hold, got larger ones.")
    return torch.from_numpy(found)


def _from_objects(name: str, array: np.ndarray) -> np.ndarray:
    """Numbers that came as Python objects, with NaN where one is missing; other objects as they are."""
    parts = array.ravel().tolist()
    if not all(isinstance(part, numbers.Real | Decimal | np.bool_) or is_missing(part) for part in parts):
        return array
    try:
        lacking = [is_missing(part) for part in parts]
        plain = np.array([np.nan if gone else part for gone, part in zip(lacking, parts, strict=True)])
        return (plain.astype(float) if plain.dtype.hasobject else plain).reshape(array.shape)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"`{name}` must hold numbers that float64 can hold: {error}.") from error


def to_floats(name: str, values: Any) -> Tensor:
    """Numbers as floats: float32 and shorter stay float32, others become float64."""
    found = to_tensor(name, values)
    if found.dtype == torch.int64 and bool((found.abs() > _MOST_EXACT).any()):
        raise ValueError(f"`{name}` must hold whole numbers up to 2**53, as float64 has them all, got larger ones.")
    return found.to(torch.float32 if found.is_floating_point() and found.itemsize <= 4 else torch.float64)


def to_matrix(name: str, values: Any, *, boolean: bool = False) -> Tensor:
    """A matrix (models, rows) of `to_floats`, or with `boolean` of truth values."""
    matrix = to_tensor(name, values)
    if not boolean and matrix.dtype == torch.bool:
        raise TypeError(f"`{name}` must hold numbers, got truth values; give 0 and 1 as numbers, or are some swapped?")
    matrix = matrix if boolean else to_floats(name, matrix)
    if matrix.ndim > 2 or 0 in matrix.shape:
        raise ValueError(f"`{name}` must be (models, rows), or (rows) of one model, got shape {tuple(matrix.shape)}.")
    if boolean and matrix.dtype != torch.bool and not bool(((matrix == 0) | (matrix == 1)).all()):
        raise ValueError(
            f"`{name}` must hold truth values, or 0 and 1, got others: a mask of all rows, not the numbers of some; "
            "or are arguments swapped?"
        )
    matrix = matrix.reshape(-1, matrix.shape[-1] if matrix.ndim else 1)
    return matrix.bool() if boolean else matrix


def to_names(name: str, values: Any, rows: int) -> np.ndarray:
    """A text for each row, "missing" where there is none."""
    rule = f"`{name}` must be one for each of the {rows} rows"
    if isinstance(values, str):
        raise ValueError(f"{rule}, got {values!r}; give the column itself, not its name.")
    try:
        array = to_array(name, values)
    except ValueError as error:
        raise ValueError(f"{rule}: {error}") from error
    if array.shape not in ((rows,), (rows, 1)):
        raise ValueError(f"{rule}, got shape {array.shape}.")
    parts = array.ravel().astype(str if array.dtype.kind in "mM" else array.dtype).tolist()
    return np.array(["missing" if is_missing(part) or part == "NaT" else str(part) for part in parts])


def number_units(units: Any, rows: int) -> tuple[np.ndarray, Tensor]:
    """The names of units in the order in which they appear, and the number of each row's unit."""
    names = to_names("units", units, rows)
    if lacking := [row for row, name in enumerate(names.tolist()) if name in {"missing", *_MISSING_TEXTS}]:
        raise ValueError(
            f"`units` must name the unit of every row, got none at row {lacking[0]}; leave such rows out or name each."
        )
    numbers: dict[str, int] = {}
    unit = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
    return np.array([*numbers]), torch.tensor(unit)


def to_classes(name: str, values: Any, *, whole: bool = False) -> np.ndarray:
    """A label for each row, of any type; with `whole`, whole numbers from 0."""
    labels = to_array(name, values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"`{name}` must be one label for each row, got shape {labels.shape}.")
    if lacking := [row for row, label in enumerate(labels.tolist()) if is_missing(label)]:
        raise ValueError(f"`{name}` must be a label for every row, got none at row {lacking[0]}; leave such rows out.")
    if not whole:
        return np.array(labels.tolist()) if labels.dtype.hasobject else labels
    numbers = to_tensor(name, labels)
    rounded = numbers.long() if numbers.dtype == torch.bool or bool((numbers == numbers.round()).all()) else numbers
    return arguments.check_whole(name, rounded).numpy()


def to_rows(name: str, X: Any) -> Any:
    """Rows that can be selected: tensors become arrays, sparse matrices of every format CSR."""
    if isinstance(X, Tensor | np.ma.MaskedArray) or (isinstance(X, list) and any(isinstance(row, Tensor) for row in X)):
        return to_array(name, X)
    try:
        (rows,) = indexable(X)
        _num_samples(rows)
        return rows
    except TypeError as error:
        raise TypeError(f"`{name}` must be rows, as an array, a frame, a sparse matrix or a list: {error}.") from error


def numeric_features(X: Any) -> Any:
    """X if it is an array of numbers, or the columns of numbers of a data frame; else None."""
    if hasattr(X, "select_dtypes"):
        X = X.select_dtypes(["number", "bool"]).to_numpy(dtype=float, na_value=np.nan)
    return X if isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim > 1 and X.shape[1] else None


def row_contents(X: Any) -> list[Hashable]:
    """Values that are equal for equal rows of an array, a data frame, a sparse matrix or a list."""
    if isinstance(X, Tensor):
        X = _to_plain(X).numpy()
    if hasattr(X, "tocsr"):
        rows = X.tocsr().copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
        parts = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in parts]
    try:
        array = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    except ValueError:  # lists of different lengths
        return [repr(_to_lists(row)) for row in X]
    if array.dtype.hasobject:
        return [repr(_to_lists(row)) for row in array]
    return [row.tobytes() for row in array]


def _to_lists(value: Any) -> Any:
    """Arrays in lists as lists: `repr` leaves out the middle of a long array."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_to_lists(part) for part in value]
    return value


def to_inputs(X: Any) -> Shaped[Tensor, "points ..."]:
    if isinstance(X, Dataset | DataLoader):
        raise TypeError(
            f"`X` must be a tensor or an array, got {type(X).__name__}; of a data set `data` give "
            "`torch.stack([row for row, _ in data])`, and `[label for _, label in data]` as `y`."
        )
    inputs = to_tensor("X", X)
    if inputs.ndim < 2:
        raise ValueError(f"`X` must have rows of features, (rows, …), got shape {tuple(inputs.shape)}.")
    return inputs


def to_generator(generator: Any) -> torch.Generator:
    """The given PyTorch generator, one seeded by the given NumPy generator, or, for None, one with seed 0."""
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
