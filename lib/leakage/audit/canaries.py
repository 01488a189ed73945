"""Bounds of ε for whoever has NumPy, lists or PyTorch: what `metrics.epsilon_bounds` takes, checked and converted."""

from typing import Any

from torch import Tensor

from leakage import arguments
from leakage.audit.arrays import to_matrix
from leakage.metrics import epsilon_bounds
from leakage.metrics.epsilon_bounds import Bound

_UNFAIR = 1e-4  # share of fair coins that are taken for unfair


def one_run(scores: Any, member: Any, *, guesses: Any, delta: float, level: float) -> Bound:
    """See `audit.one_run`."""
    values, coins = _row("scores", scores), _row("member", member, truth=True)
    if values.shape != coins.shape:
        raise ValueError(f"`member` must be one for each of the {len(values)} scores, got {len(coins)}.")
    inside = int(coins.sum())
    if _two_sided(inside, len(coins)) < _UNFAIR:
        raise ValueError(
            f"`member` must come from fair coins, got {inside} heads of {len(coins)}: from others the attacker guesses "
            "without the model, and a bound would be none."
        )
    given = {"guesses": _pairs(guesses), "delta": delta, "level": level}
    return epsilon_bounds.one_run(values, coins, **given)


def of_trials(hits: Any, alarms: Any, *, delta: float, level: float) -> Bound:
    """See `audit.of_trials`."""
    counts = (_pair(name, given) for name, given in (("hits", hits), ("alarms", alarms)))
    return epsilon_bounds.of_trials(*counts, delta=delta, level=level)


def _two_sided(heads: int, tosses: int) -> float:
    """How often a fair coin falls as far from one half as this, or farther."""
    from scipy import special

    return min(1.0, 2 * float(special.bdtr(min(heads, tosses - heads), tosses, 0.5)))


def _row(name: str, values: Any, *, truth: bool = False) -> Tensor:
    found = to_matrix(name, values, truth=truth)
    if len(found) != 1:
        raise ValueError(f"`{name}` must be one number for each canary of one training, got {tuple(found.shape)}.")
    return found[0]


def _pairs(guesses: Any) -> list[tuple[int, int]]:
    try:
        return [_pair("guesses", pair) for pair in guesses]
    except TypeError as error:
        raise ValueError("`guesses` must be pairs (members, outsiders), such as [(50, 50)].") from error


def _pair(name: str, given: Any) -> tuple[int, int]:
    found = tuple(given) if hasattr(given, "__len__") else ()
    if len(found) != 2:
        what = "pairs (members, outsiders), such as [(50, 50)]" if name == "guesses" else "a pair (accused, trainings)"
        raise ValueError(f"`{name}` must be {what}, got {given!r}.")
    first, second = (arguments.count(name, count) for count in found)
    return first, second
