"""The device, the size and the random numbers of a computation.

A chapter begins with `begin(profile, seed, device)` and chooses its sizes with `settings`. Only this module asks
whether a GPU exists; all other code takes device and dtype from its tensors.
"""

import hashlib
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import torch

from leakage import arguments

PROFILES = ("smoke", "ci", "paper")
"""The sizes in which a chapter runs: "smoke" shows only that it runs, CI checks the results of "ci", and "paper" has
the sizes of the papers."""
_LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Run:
    """The validated parameters of one execution of a chapter."""

    profile: str
    seed: int
    device: torch.device

    def stream(self, name: str) -> torch.Generator:
        """The random generator with this name, for the seed and the device of this run (see `runtime.stream`)."""
        return stream(self.seed, name, self.device)


def begin(profile: str = "ci", seed: int = 0, device: str = "auto") -> Run:
    """Validate a chapter's parameters and choose its device.

    Raises:
        ValueError: naming the parameter, the rule and the value received.
    """
    return Run(check_profile(profile), check_seed(seed), pick_device(device))


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


def stream(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A new random generator, which depends only on `seed`, `name` and the type of device.

    The state comes from SHA-256, so generators with different names are in practice independent.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little"))


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
