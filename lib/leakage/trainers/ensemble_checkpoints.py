"""Trainings that go on after an interruption: the whole state of an ensemble in one file named after its content.

A file holds parameters, optimiser, epoch, the state of the random generator and what an observer has gathered, behind
a checksum (`checked_files`): it is there completely or not at all, cannot run code, and a damaged one counts for
nothing, so that the training begins anew. So it does under another version of the trainers' code or of the packages.
Nothing here trains, and nothing deletes a file.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from leakage import arguments, checked_files, content_keys, fingerprints

_TRAINERS = "from leakage.trainers import ensembles, modules, perceptrons"  # who keeps a journal


@dataclass(frozen=True)
class Checkpoint:
    """Where a training keeps its state, and how often.

    Attributes:
        folder: holds one file for each training, named after its content.
        seconds: a state is written at the end of an epoch if the last one is at least this old.
    """

    folder: Path | str
    seconds: float = 60.0

    def __post_init__(self) -> None:
        arguments.number("seconds", self.seconds, least=0, finite=False)  # 0: every epoch


@runtime_checkable
class Remembers(Protocol):
    """What an observer of a resumable training can do: give away what it has gathered, and take it back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Journal:
    """The file of one training, named after the `content` that fixes it. Without a `Checkpoint` there is none.

    Raises:
        ValueError: if there is a checkpoint and the observer cannot remember: its finds would be lost on resuming.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        content: Callable[[], Any],
        *,
        parameters: Sequence[Tensor],
        optimiser: Optimizer,
        generator: torch.Generator,
        observe: Any = None,
    ) -> None:
        if checkpoint is not None and observe is not None and not isinstance(observe, Remembers):
            raise ValueError(
                "`observe` must have state_dict and load_state_dict where a `checkpoint` is given, as "
                f"`ensembles.Recorder` has; got {type(observe).__name__}: what it gathered would be lost on resuming."
            )
        self.watch = content_keys.Watch()
        self.parameters, self.optimiser, self.generator, self.observe = parameters, optimiser, generator, observe
        self.path = None if checkpoint is None else Path(checkpoint.folder) / f"{self._versioned(content())}.pt"
        self.seconds = 0.0 if checkpoint is None else checkpoint.seconds
        self.written = time.monotonic()

    def _versioned(self, content: Any) -> str:
        code = [self.watch.digest(file) for file in sorted(content_keys.module_files(_TRAINERS))]
        return fingerprints.fingerprint((content, code, content_keys.environment(None, imported=True)))

    def resume(self) -> int:
        """Take up the state on disk, if there is a good one, and say how many epochs it has behind it."""
        if self.path is None or self.watch.changed() or not self.path.is_file():
            return 0
        try:
            state = checked_files.read(self.path, device=self.parameters[0].device)
        except checked_files.Damaged as error:
            tqdm.write(f"checkpoint {self.path.name} is not used, for {error}: the training begins anew")
            return 0
        with torch.no_grad():
            for tensor, stored in zip(self.parameters, state["parameters"], strict=True):
                tensor.copy_(stored)
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"].cpu())
        if isinstance(self.observe, Remembers):
            self.observe.load_state_dict(state["observer"])
        return state["epoch"]

    def save(self, epoch: int, *, last: bool = False) -> None:
        """Write the state after `epoch` epochs, if it is time to or the last of them."""
        if self.path is None or not (last or time.monotonic() - self.written >= self.seconds):
            return
        if self.watch.changed():  # what trains is no longer the code on disk
            return
        state = {
            "parameters": list(self.parameters),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "epoch": epoch,
            "observer": self.observe.state_dict() if isinstance(self.observe, Remembers) else None,
        }
        checked_files.write(self.path, checked_files.pack(state))
        self.written = time.monotonic()
