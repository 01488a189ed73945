"""The device, the size and the random numbers of a computation.

A chapter begins with `begin(profile, seed, device)` and chooses its sizes with `settings`. Only this module asks
whether a GPU exists. An experiment that trains or attacks on a GPU takes the `Run`, asks it for a device
(`Run.device_for`), moves there what it drew on the CPU, and returns tensors of the CPU (`move`). Everything else stays
on the CPU.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from typing import Any, TypeVar

import torch

from leakage import arguments

PROFILES = ("smoke", "ci", "paper")
"""The sizes in which a chapter runs: "smoke" shows only that it runs, CI checks the results of "ci", and "paper" has
the sizes of the papers."""
GPU_FROM: Mapping[str, float] = {
    "networks": 2.26e8,  # networks × batch × weights: 64 networks 128-256-10 in batches of 100, 3.8 times as fast
    "private networks": 4.52e8,  # the same, for DP-SGD: 8 networks at 8 settings in batches of 200, 6.9 times
    "margin flow": 4e7,  # networks × points × neurons × min(points, dimension): 100 of 1,000 neurons, 2.7 times
    "logistic regression": 8e9,  # fits × points³: one fit of 2,000 points with all of them left out, 3.0 times
    "gradient inversion": 6.27e6,  # neurons × dimension: 8,000 neurons at 784 pixels, 1.6 times
}
"""The least size of each kind of work at which a GPU was measured to be 1.5 times as fast as 16 cores of a CPU, or more
(`book/records/devices.json`). What is smaller stays on the CPU: it was not measured, or gained nothing, as margin flow
of one network with 10,000 neurons on 20 points, at 4e6."""
_LARGEST_SEED = 2**32 - 1
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """The validated parameters of one execution of a chapter."""

    profile: str
    seed: int
    device: torch.device  # the GPU that work may use, or the CPU
    automatic: bool = False  # whether only work that gains by it uses the GPU, as the table `GPU_FROM` says

    def stream(self, name: str) -> torch.Generator:
        """The random generator with this name, for the seed of this run (see `runtime.stream`)."""
        return stream(self.seed, name)

    def device_for(self, work: str, size: float) -> torch.device:
        """Where work of this kind and size is computed; `GPU_FROM` has the kinds and says what a size is."""
        small = size < GPU_FROM[work]
        return torch.device("cpu") if self.automatic and small else self.device


def begin(profile: str = "ci", seed: int = 0, device: str = "auto") -> Run:
    """Validate a chapter's parameters and choose its device.

    Raises:
        ValueError: naming the parameter, the rule and the value received.
    """
    chosen = pick_device(device)
    return Run(check_profile(profile), check_seed(seed), chosen, automatic=device == "auto" and chosen.type != "cpu")


def check_profile(profile: object) -> str:
    """Return `profile` if it is one of `PROFILES`; raise `ValueError` otherwise."""
    return arguments.check_choice("profile", profile, PROFILES)


def check_seed(seed: object) -> int:
    """Return `seed` if it is an integer in [0, 2³²); raise `ValueError` otherwise (a `bool` is not accepted)."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"`seed` must be a whole number from 0 to {_LARGEST_SEED}; got {arguments.shown(seed)}.")
    return seed


def pick_device(device: object = "auto") -> torch.device:
    """The device with this name: `cpu`, `cuda`, `cuda:N`, or `auto` for the first GPU if there is one, else the CPU.

    Raises:
        ValueError: if the machine has no such device; the message lists the devices it has.
    """
    gpus = [f"cuda:{index}" for index in range(gpu_count())]
    name = arguments.check_choice("device", device, ["auto", "cpu", *(["cuda", *gpus] if gpus else [])])
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def gpu_count() -> int:
    """How many GPUs this process may use."""
    return torch.cuda.device_count()


def stream(seed: int, name: str) -> torch.Generator:
    """A new random generator of the CPU, which depends only on `seed` and `name`.

    It gives the same numbers whatever the device of the run: an experiment moves what it draws, and `leakage.draws`
    does so for trainers and attacks. The state comes from SHA-256, so generators with different names are in practice
    independent.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))


def move(value: T, device: torch.device | str) -> T:
    """`value` with every tensor in it on `device`: in containers, named tuples and dataclasses."""
    moved: Any = value
    if isinstance(value, torch.Tensor):
        moved = value.to(device)
    elif isinstance(value, dict):
        moved = {name: move(part, device) for name, part in value.items()}
    elif isinstance(value, list | tuple):
        parts = [move(part, device) for part in value]
        moved = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif is_dataclass(value) and not isinstance(value, type):
        own = {one.name: move(getattr(value, one.name), device) for one in fields(value) if one.init}
        moved = replace(value, **own)
    return moved


def map_tensors(function: Callable[..., torch.Tensor], *records: Any) -> Any:
    """Records of one form as one: `function` of the tensors in each place, in named tuples, dictionaries and None."""
    first = records[0]
    if first is None or isinstance(first, torch.Tensor):
        return first if first is None else function(*records)
    if isinstance(first, dict):
        return {name: map_tensors(function, *(record[name] for record in records)) for name in first}
    return type(first)(*(map_tensors(function, *parts) for parts in zip(*records, strict=True)))


def settings(profile: str, **profiles: dict[str, Any]) -> Any:
    """The frozen settings object of `profile`, from one dictionary for each of `PROFILES`.

    All dictionaries must have the same names with the same types. So a misspelt name raises an error in every profile.

    Raises:
        ValueError: if a profile is missing or unknown, or the names or types differ between profiles.
    """
    check_profile(profile)
    if set(profiles) != set(PROFILES):
        raise ValueError(f"`settings` needs exactly the profiles {', '.join(PROFILES)}; got {', '.join(profiles)}.")
    chosen = {name: type(value) for name, value in profiles[profile].items()}
    for other, sizes in profiles.items():
        types = {name: type(value) for name, value in sizes.items()}
        if differing := sorted(name for name in {*types, *chosen} if types.get(name) is not chosen.get(name)):
            raise ValueError(
                f"`settings` must have the same names and types in all profiles; {other} and {profile} differ in: "
                f"{', '.join(differing)}."
            )
    fields = [(name, type(value), field(default=value)) for name, value in profiles[profile].items()]
    return make_dataclass("Settings", fields, frozen=True)()
