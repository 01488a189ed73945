"""Whatever a user hands in becomes the same array, or is refused by the name of its argument."""

import numpy as np
import pytest
import torch
from scipy import sparse

from leakage import audit
from leakage.arrays import row_contents, to_classes, to_names, to_tensor

pandas = pytest.importorskip("pandas")  # the library alone does not need it

NUMBERS = np.array([[0.0, 0.5, 2.0], [1.0, 0.0, 0.25]])
TENSOR = torch.tensor(NUMBERS, requires_grad=True)
FORMS = {
    "lists": NUMBERS.tolist(),
    "tuple of arrays": (*NUMBERS,),
    "gradient": TENSOR,
    "list of tensors with a gradient": [*TENSOR],
    "lists of single tensors": [[*row] for row in TENSOR],
    "tensor and array": [TENSOR[0], NUMBERS[1]],
    "bfloat16": TENSOR.bfloat16(),
    "list of bfloat16": [*TENSOR.bfloat16()],
    "float16": NUMBERS.astype(np.float16),
    "sparse tensor": TENSOR.detach().to_sparse(),
    **{kind: sparse.coo_matrix(NUMBERS).asformat(kind) for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")},
    "sparse array": sparse.coo_array(NUMBERS),
    "list of sparse rows": [sparse.csr_matrix(row) for row in NUMBERS],
    "frame": pandas.DataFrame(NUMBERS),
    "frame with other numbers": pandas.DataFrame(NUMBERS).astype("Float64"),
    "categories": pandas.DataFrame(NUMBERS).astype("category"),
    "objects": NUMBERS.astype(object),
    "other bytes": NUMBERS.astype(">f8"),
    "extended": NUMBERS.astype(np.longdouble),
    "read only": np.broadcast_to(NUMBERS, NUMBERS.shape),
    "every other": np.repeat(NUMBERS, 2, axis=1)[:, ::2],
    "nothing masked": np.ma.masked_array(NUMBERS, np.zeros_like(NUMBERS, dtype=bool)),
}


@pytest.mark.parametrize("values", FORMS.values(), ids=FORMS)
def test_every_form_becomes_the_same_numbers(values):
    found = to_tensor("values", values)
    assert (found.device.type, found.layout, found.requires_grad) == ("cpu", torch.strided, False)
    torch.testing.assert_close(found.double(), torch.tensor(NUMBERS))


MISSING = {
    "None": [0.5, None],
    "nullable": pandas.Series([0.5, None], dtype="Float64"),
    "masked": np.ma.masked_array([0.5, 9.0], [False, True]),
    "masked whole": np.ma.masked_array([1, 9], [False, True]),
}


@pytest.mark.parametrize("values", MISSING.values(), ids=MISSING)
def test_what_is_missing_is_no_number(values):
    assert to_tensor("values", values).isnan().tolist() == [False, True]


REFUSED = {
    "generator": (lambda: (number for number in range(3)), "numbers, got generator"),
    "dictionary": (lambda: {1: 2.0}, "numbers, got dict"),
    "set": (lambda: {1.0, 2.0}, "numbers, got set"),
    "text": (lambda: "losses", "numbers, got str"),
    "texts": (lambda: np.array(["1", "2"]), "numbers, got str"),
    "frame with texts": (lambda: pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "numbers, got int, str"),
    "dates": (lambda: np.array(["2026-01-01"], dtype="M8[D]"), "numbers, got date"),
    "records": (lambda: np.array([(1, 2)], dtype="i4,i4"), "numbers, got tuple"),
    "complex": (lambda: TENSOR + 1j, "real numbers, got complex"),
    "unequal": (lambda: [[1.0], [1.0, 2.0]], "rows of equal lengths"),
    "unequal tensors": (lambda: [TENSOR[0], TENSOR[0, :2]], "rows of equal lengths"),
    "no device": (lambda: torch.empty(3, device="meta"), "an array, a tensor or a list"),
    "large whole": (lambda: np.array([2**64 - 1], dtype=np.uint64), "numbers that int64 can hold"),
    "large": (lambda: np.full(2, np.longdouble("1e4000")), "numbers that float64 can hold"),
    "huge": (lambda: [10**400], "numbers that float64 can hold"),
    "vast": (lambda: sparse.coo_matrix((10**6, 10**6)), "too many to write out"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_lose_something_is_refused_by_name(make, message):
    with pytest.raises((TypeError, ValueError), match=f"`values` must .*{message}"):
        to_tensor("values", make())


@pytest.mark.parametrize(
    "names",
    [
        ["a", None, "b"],
        pandas.Series(["a", None, "b"]),
        pandas.Categorical(["a", np.nan, "b"]),
        np.ma.masked_array(["a", "c", "b"], [0, 1, 0]),
    ],
)
def test_a_missing_name_is_a_name_of_its_own_and_a_missing_label_is_refused(names):
    assert to_names("groups", names, 3).tolist() == ["a", "missing", "b"]
    with pytest.raises(ValueError, match="`y` must be a label for every row, got none at row 1"):
        to_classes("y", names)


DRAWS = np.random.default_rng(0)
MEMBER = DRAWS.random((6, 40)) < 0.5
LOSSES = np.round(DRAWS.exponential(size=(6, 40)), 2)
GIVEN = {
    "losses": LOSSES,
    "member": MEMBER,
    "correct": LOSSES < 1,
    "population": LOSSES[:, :9],
    "features": LOSSES.T,
    "labels": np.arange(40) % 2,
    "groups": np.arange(40) % 3,
    "units": np.arange(40),
}
WRAPS = {
    "list of tensors": lambda values: [*torch.tensor(values, dtype=torch.float64).requires_grad_()],
    "sparse": lambda values: sparse.coo_matrix(values if values.ndim == 2 else values[:, None]),
    "frame": lambda values: pandas.DataFrame(values),
    "objects": lambda values: values.astype(object),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_every_argument_of_an_audit_takes_every_form(wrap):
    expected = audit.of_losses(**GIVEN, fprs=(0.1,))
    for name, values in GIVEN.items():
        found = audit.of_losses(**GIVEN | {name: wrap(values)}, fprs=(0.1,))
        for attack, scores in expected.scores.items():
            np.testing.assert_allclose(found.scores[attack], scores, err_msg=name)


def test_rows_with_long_or_uneven_parts_are_told_apart():
    signals = np.empty((20, 1), dtype=object)
    signals[:, 0] = [*DRAWS.normal(size=(20, 1500))]
    for rows in (signals, [[signal] for signal in signals[:, 0]], [[1, 2], [1], [2, 1]]):
        assert len({*row_contents(rows)}) == len(rows)
    stored = sparse.csr_matrix(([1.0, 0.0], [0, 1], [0, 2]), shape=(1, 2))  # with a zero that is written down
    assert row_contents(stored) == row_contents(sparse.csr_matrix([[1.0, 0.0]]))
