"""Threads give the results of one thread, in order, and stop at the first error."""

import json
import threading
import time

import numpy as np
import pytest
import torch

from checking import all_numbers
from leakage import audit
from leakage.threads import map_threads, use_threads
from reproduced.runtime import stream


@pytest.fixture(params=[1, 3])
def threads(request):
    """PyTorch on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_are_in_order_and_no_thread_has_threads_of_its_own(threads):
    seen = set()

    def square(number):
        seen.add((threading.get_ident(), torch.get_num_threads()))
        time.sleep(0.01 * (number % 2))
        return number**2

    with use_threads():
        assert map_threads(square, range(20)) == [number**2 for number in range(20)]
    assert len(seen) <= threads
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == threads


def test_an_error_is_raised_before_all_is_done_and_leaves_no_thread(threads):
    done = []

    def fail_at_once(number):
        if number == 0:
            raise ValueError("the first")
        time.sleep(0.01)
        done.append(number)

    running = threading.active_count()
    with pytest.raises(ValueError, match="the first"), use_threads():
        map_threads(fail_at_once, range(100))
    assert len(done) < 50
    assert threading.active_count() == running
    assert torch.get_num_threads() == threads


def test_an_audit_has_the_same_numbers_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr("leakage.membership.shadow_models._NUMBERS_IN_BLOCK", 512)  # many blocks
    monkeypatch.setattr("leakage.membership.evaluation._NUMBERS_RANKED_AT_ONCE", 512)
    member = torch.rand(8, 300, generator=stream(0, "member")) < 0.5
    losses = torch.rand(8, 300, generator=stream(0, "losses"), dtype=torch.float64) * torch.where(member, 0.5, 1.0)
    before, found = torch.get_num_threads(), []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        found.append([*all_numbers(json.loads(audit.of_losses(losses, member).to_json())["attacks"])])
    torch.set_num_threads(before)
    np.testing.assert_allclose(*found, rtol=1e-12)
