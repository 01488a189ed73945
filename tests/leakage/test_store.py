"""A file comes back as it was written, or not at all."""

import hashlib
import io
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given

from leakage import store
from leakage.metrics.estimates import Estimate
from small_data import spoiled

ESTIMATE = Estimate(0.5, 0.4, float("inf"), 10, level=0.9)
PLAIN = [None, True, 3, 0.1, math.inf, "text", b"bytes", [1, [2.5]], (1, (2,)), {"a": {1: 2.0}}, ESTIMATE, [ESTIMATE]]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(*paths):
        raise OSError("the disk is full")

    monkeypatch.setattr(store.os, "replace", refuse)
    with pytest.raises(OSError, match="full"):
        store.write(tmp_path / "value", b"1")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool])
def test_values_records_and_tensors_come_back_as_they_were(tmp_path, dtype):
    part, path = torch.arange(4).reshape(2, 2).to(dtype)[:, :1], tmp_path / "new" / "value.pt"
    store.save(path, {"plain": PLAIN, "part": part, "scalar": np.float64(0.5)})
    found = store.load(path)
    assert found["plain"] == PLAIN
    torch.testing.assert_close(found["part"], part)
    assert found["part"].untyped_storage().nbytes() == 2 * part.itemsize, "no more than the part"
    assert type(found["scalar"]) is float


@dataclass(frozen=True)
class RecordOfAnotherPackage:
    n: int


@pytest.mark.parametrize("value", [object(), {"deep": [set()]}, RecordOfAnotherPackage(1), {(1, 2): 3}, np.arange(3)])
def test_a_value_that_no_file_holds_is_refused(value):
    with pytest.raises(TypeError, match="cannot be kept in a file"):
        store.pack(value)


SPRUNG = []


class Springs:
    def __reduce__(self):
        return (SPRUNG.append, ("sprung",))


GOOD = store.pack({"tensor": torch.arange(3.0)})


@given(spoiled(GOOD))
def test_an_altered_file_is_never_believed(content):
    with pytest.raises(store.DamagedFile):
        store.unpack(content)


def test_a_forged_file_is_never_believed_and_runs_no_code():
    def saved(value):
        torch.save(value, buffer := io.BytesIO())
        return buffer.getvalue()

    strange = [{"leakage record": name, "args": "true"} for name in ("os:system", "subprocess:Popen", "nothing:X", 3)]
    payloads = (b"", b"text", pickle.dumps(Springs()), GOOD[32:-5], *map(saved, [*strange, {"trap": Springs()}]))
    for payload in payloads:
        with pytest.raises(store.DamagedFile):
            store.unpack(hashlib.sha256(payload).digest() + payload)
    assert SPRUNG == []
