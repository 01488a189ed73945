"""Processes of this machine that a build leaves to one of its chapters, for the points of a grid."""

import functools
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from typing import Any

import torch

from leakage import content_keys


def spare(function: Callable[[Any], Any], points: int, device: torch.device) -> Executor | None:
    """The processes that a build leaves to this one, if they can be told what to do; on a GPU none."""
    asked = os.environ.get(content_keys.PROCESSES_VARIABLE, "1")
    if points < 2 or device.type != "cpu" or not asked.isdecimal() or int(asked) < 2:
        return None
    try:
        named = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, say
        return None
    return None if b"__main__" in named else _processes(int(asked))  # written in a notebook, which only this one has


@functools.cache
def _processes(count: int) -> Executor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Divide nothing further, and end with the process that asked, however it ends."""
    os.environ[content_keys.PROCESSES_VARIABLE] = "1"
    threading.Thread(target=_end_with_the_other, daemon=True).start()


def _end_with_the_other() -> None:
    other = parent_process()
    assert other is not None, "begun by another process"
    connection.wait([other.sentinel])
    os._exit(1)
