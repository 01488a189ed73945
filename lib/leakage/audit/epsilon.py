"""Lower bounds on ε from what an attacker guessed, for lists, NumPy arrays and tensors."""

import math
from functools import partial
from typing import Any

from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.arrays import to_matrix, to_tensor
from leakage.metrics import epsilon_bounds, gaussian_mechanism
from leakage.metrics.epsilon_bounds import Bound
from leakage.metrics.estimates import clopper_pearson, smallest_count

_PAIRS = "pairs (members, outsiders), such as [(50, 50)]"
_FAIRNESS_TEST_LEVEL = 1e-4  # false-alarm rate of the test that the coins are fair
_MOST_CANARIES = 2**20
_MOST_TRIALS = 2**53  # as whole numbers of float64
_LEAST_RATE = 2.0**-53  # that a float64 tells from 0 beside 1


def one_run(
    scores: Any, member: Any, *, guesses: Any, delta: float, level: float = 0.95, gaussian: bool = False
) -> Bound:
    """A lower bound on ε from one training, in which a fair coin decided for each canary whether it was trained on.

    See `metrics.epsilon_bounds.one_run` for the equations. The bound is conservative: it holds at its level, whatever
    the attack is and however the canaries depend on each other. It also states the largest bound the design allows.

    Args:
        scores: of the canaries alone, the rows for which a coin was thrown; larger for likelier members. Minus the loss
            will do.
        member: whether the canary was trained on. Refused if so few or so many are members that it happens to fair
            coins once in 10,000 times.
        guesses: pairs (members, outsiders): how many canaries with the highest scores are guessed to be members, and
            how many with the lowest to be outsiders. Choose them before you see the scores. The failure probability
            is divided among the pairs.
        delta: δ of (ε, δ)-differential privacy, in [0, 1).
        level: the probability, at least, with which such a bound is right.
        gaussian: assume the privacy curve of a Gaussian mechanism, which gives a larger bound. Only where the noise is
            Gaussian, as in DP-SGD with many small steps: elsewhere such a bound may be wrong.
    """
    values, coins = _to_row("scores", scores), _to_row("member", member, boolean=True)
    if len(values) != len(coins):
        raise ValueError(f"`member` must be one for each of the {len(values)} scores, got {len(coins)}.")
    if not bool(values.isfinite().all()):
        raise ValueError("`scores` must be finite, got NaN or infinity among them.")
    inside = int(coins.sum())
    if 2 * special.bdtr(min(inside, len(coins) - inside), len(coins), 0.5) < _FAIRNESS_TEST_LEVEL:
        raise ValueError(
            f"`member` must come from fair coins, got {inside} heads of {len(coins)}: with unfair coins an attacker "
            "guesses many without the model, and the bound would be wrong."
        )
    pairs = _to_pairs("guesses", guesses, _PAIRS)
    if wrong := [pair for pair in pairs if not 1 <= sum(pair) <= len(values)]:
        raise ValueError(f"`guesses` must be 1 to {len(values)} in sum, the number of canaries, got {wrong[0]}.")
    delta, level = _check_delta_and_level(delta, level, gaussian)
    return epsilon_bounds.one_run(values, coins, guesses=pairs, delta=delta, level=level, gaussian=gaussian)


def canaries_for(
    epsilon: float, *, delta: float, level: float = 0.95, share: float = 1.0, gaussian: bool = False
) -> int:
    """How many canaries `one_run` needs for a bound of at least ε if every guess is right; an error if over a million.

    Args:
        epsilon: the ε to be shown, above 0 and at most 64, in nats.
        delta: δ of (ε, δ)-differential privacy, in [0, 1).
        level: of the bound, with one pair of guesses.
        share: how many of the canaries are guessed, in (0, 1]; an attack is rarely right about all of them.
        gaussian: as in `one_run`.
    """
    epsilon = arguments.check_number("epsilon", epsilon, above=0, most=epsilon_bounds.LARGEST)
    share = arguments.check_number("share", share, above=0, most=1)
    delta, level = _check_delta_and_level(delta, level, gaussian)
    if gaussian:
        least_wrong = epsilon_bounds.gaussian_wrong(gaussian_mechanism.mu(epsilon, delta))
    else:
        least_wrong = epsilon_bounds.private_wrong(epsilon, delta)

    def suffices(canaries: int) -> bool:
        guesses = max(1, round(share * canaries))
        total = epsilon_bounds.least_total(guesses, guesses, points=canaries, error=1 - level, least_wrong=least_wrong)
        return total > 1

    found = smallest_count(suffices, most=_MOST_CANARIES)
    if found is None:
        raise ValueError(
            f"`epsilon` must be one that a million canaries can show, got {epsilon:g} at δ = {delta:g}, with "
            f"{share:.3g} of them guessed; take a smaller ε or δ, or a larger `share`."
        )
    return found


def of_trials(hits: Any, alarms: Any, *, delta: float, level: float = 0.95) -> Bound:
    r"""A lower bound on ε from many independent trainings with and without one row.

    $$ \varepsilon \ge \max\Bigl(\log \frac{\mathrm{TPR}_{\text{low}} - \delta}{\mathrm{FPR}_{\text{high}}},\;
       \log \frac{1 - \mathrm{FPR}_{\text{high}} - \delta}{1 - \mathrm{TPR}_{\text{low}}}\Bigr) $$

    with Clopper–Pearson ends, each one-sided at half the error, so that both hold together: it is conservative. Many
    rows of one training are not independent trials; `one_run` is for these.

    Source: Jagielski, Ullman and Oprea (2020), Auditing Differentially Private Machine Learning; Nasr et al. (2021).

    Args:
        hits: a pair (flagged, trainings) of the trainings with the row: in how many the attacker says "member".
        alarms: the same of the trainings without it. Choose the attacker's threshold on other trainings.
        delta: δ of (ε, δ)-differential privacy, in [0, 1).
        level: the probability, at least, with which such a bound is right.
    """
    given, rule = (("hits", hits), ("alarms", alarms)), "a pair (flagged, trainings)"
    pairs = [_to_pairs(name, pair, rule, one=True)[0] for name, pair in given]
    for name, (flagged, trainings) in zip(("hits", "alarms"), pairs, strict=True):
        if not 0 < trainings >= flagged:
            raise ValueError(f"`{name}` must be a pair flagged <= trainings, got {flagged} of {trainings}; swapped?")
    delta, level = _check_delta_and_level(delta, level)
    (right, present), (wrong, absent) = pairs
    epsilon = _ratio_of_trials(*pairs, delta=delta, level=level)
    most = _ratio_of_trials((present, present), (0, absent), delta=delta, level=level)
    return Bound(epsilon, delta, level, present + absent, correct=right + absent - wrong, most=most)


def _ratio_of_trials(hits: tuple[int, int], alarms: tuple[int, int], *, delta: float, level: float) -> float:
    # An interval leaves half of its error on either side, and only one side is used.
    tpr, fpr = clopper_pearson(*hits, level=level), clopper_pearson(*alarms, level=level)
    ratios = ((tpr.low - delta, fpr.high), (1 - fpr.high - delta, 1 - tpr.low))
    found = [math.log(part / max(whole, _LEAST_RATE)) for part, whole in ratios if part > 0]
    return max([0.0, *found])


def _to_row(name: str, values: Any, *, boolean: bool = False) -> Tensor:
    matrix = to_matrix(name, values, boolean=boolean)
    if len(matrix) != 1:
        raise ValueError(f"`{name}` must be one number for each canary of one training, got {tuple(matrix.shape)}.")
    return matrix[0]


def _to_pairs(name: str, values: Any, rule: str, *, one: bool = False) -> list[tuple[int, int]]:
    table = to_tensor(name, values)
    table = table[None] if one else table
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        raise ValueError(f"`{name}` must be {rule}, got {arguments.shown(values)}.")
    check = partial(arguments.check_count, name, most=_MOST_TRIALS)
    return [(check(first), check(second)) for first, second in table.tolist()]


def _check_delta_and_level(delta: float, level: float, gaussian: bool = False) -> tuple[float, float]:
    delta = arguments.check_number("delta", delta, least=0, below=1)
    if gaussian and not delta:
        raise ValueError("`delta` must be above 0 where `gaussian` is set, got 0: Gaussian noise has no ε at δ = 0.")
    return delta, arguments.check_number("level", level, above=0, below=1)
