"""Where a computation runs, in which size, and with which random numbers.

A chapter begins with `begin(profile, seed, device)` and chooses its sizes with `settings`. Only this module asks
whether a GPU exists; everything else takes device and dtype from its tensors. Nothing here computes a result.
"""

import hashlib
import re
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import torch

from leakage import arguments
from leakage.profiles import PROFILES

DTYPE = torch.float64
"""The precision of the theory: laws, quadrature and exact samplers lose their claim to exactness in float32."""
_LARGEST_SEED = 2**32 - 1
_DEVICE = re.compile(r"auto|cpu|cuda(?::(0|[1-9][0-9]{0,3}))?")


@dataclass(frozen=True)
class Run:
    """The validated parameters of one execution of a chapter."""

    profile: str
    seed: int
    device: torch.device

    def stream(self, name: str) -> torch.Generator:
        """The named random stream of this run, on its device (see `stream`)."""
        return stream(self.seed, name, self.device)


def begin(profile: str = "ci", seed: int = 0, device: str = "auto") -> Run:
    """Validate a chapter's parameters and choose its device.

    Raises:
        ValueError: naming the parameter, the rule and the value received.
    """
    return Run(check_profile(profile), check_seed(seed), pick_device(device))


def check_profile(profile: object) -> str:
    """Return `profile` if it is one of `PROFILES`; raise `ValueError` otherwise."""
    return arguments.choice("profile", profile, PROFILES)


def check_seed(seed: object) -> int:
    """Return `seed` if it is an integer in [0, 2³²); raise `ValueError` otherwise (a `bool` is not an integer here)."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"`seed` must be a whole number from 0 to {_LARGEST_SEED}; got {arguments.shown(seed)}.")
    return seed


def pick_device(device: object = "auto") -> torch.device:
    """The device named, or with `auto` the first CUDA device if there is one and the CPU otherwise.

    Raises:
        ValueError: if the name is malformed, or names a CUDA device this machine does not have.
    """
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise ValueError(f"`device` must be auto, cpu, cuda or cuda:N; got {arguments.shown(device)}.")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Before `torch.device`, which counts devices in eight bits: its cuda:256 is cuda:0.
    if device != "cpu" and int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
        raise ValueError(f"`device` {device!r} is not on this machine; use auto or cpu.")
    return torch.device(device)


def stream(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator fixed by `seed`, `name` and device type, whatever was drawn before it.

    Streams with different names are independent for every practical purpose: their states come from SHA-256.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little"))


def settings(profile: str, **profiles: dict[str, Any]) -> Any:
    """The frozen settings object of `profile`, from one dictionary for each of `PROFILES`.

    The dictionaries must have the same names with the same types, so that a size misspelt in one profile is found
    whichever profile runs.

    Raises:
        ValueError: if a profile is missing or unknown, or the names or types differ between profiles.
    """
    check_profile(profile)
    if set(profiles) != set(PROFILES):
        raise ValueError(f"`settings` needs exactly the profiles {', '.join(PROFILES)}; got {', '.join(profiles)}.")
    shapes = {name: {key: type(value) for key, value in sizes.items()} for name, sizes in profiles.items()}
    for name, shape in shapes.items():
        if shape != shapes[profile]:
            differing = sorted(k for k in {*shape, *shapes[profile]} if shape.get(k) is not shapes[profile].get(k))
            raise ValueError(f"`settings` of {name} and {profile} differ in: {', '.join(differing)}.")
    fields = [(key, type(value), field(default=value)) for key, value in profiles[profile].items()]
    return make_dataclass("Settings", fields, frozen=True)()
