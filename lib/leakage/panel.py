r"""Every membership attack of the book on one panel of models: one table, one protocol, one judge.

`evaluate(panel, generator=…)` runs the attacks of `ATTACKS`, or yours, against every model of a `Panel`. A score is
(models, points), larger for likelier members, finite, and blind: an attack may use the membership rows of all models
but the target's and its partner's. What a panel does not show (weights of a forest, logits where only losses were kept)
is said in the attack's row and raises nothing. Nothing here trains a target.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float64
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import loss_threshold
from leakage.attacks.membership.panels import Hidden, Panel
from leakage.attacks.membership.table import ATTACKS, Entry, plain
from leakage.metrics.intervals import Estimate
from leakage.metrics.scores import FPRS, Scores

_GROUPS = 20  # of points, each of which is left out once


class Row(NamedTuple):
    """What one attack achieves against each model.

    Attributes:
        entry: the attack's terms.
        scores: larger for likelier members; None where the panel hides what the attack needs.
        rates: `auc`, `advantage` and, for each rate of false alarms, `tpr_at_<fpr>`, one number a model. The advantage
            is that of the threshold which is best on the shadow models.
        left: the same rates with a group of points left out, for the intervals; empty where too few would be left.
        missing: what the panel or the sample does not show, in words.
    """

    entry: Entry
    scores: Float64[Tensor, "models points"] | None
    rates: dict[str, Float64[Tensor, " models"]]
    left: dict[str, Float64[Tensor, "groups models"]]
    missing: str


@dataclass(frozen=True, eq=False)
class Standing:
    """Every attack on the same models, so that differences are paired.

    Attributes:
        panel: the models.
        rows: by attack.
    """

    panel: Panel
    rows: Mapping[str, Row]

    def interval(self, name: str, rate: str = "auc", *, over: str | None = None, level: float = 0.95) -> Estimate:
        """A rate of one attack, or how much larger it is than that of another (`over`): mean over models.

        See `contrast`.

        Raises:
            ValueError: if an attack or a rate is not there.
        """
        return self.contrast({name: 1.0} if over is None else {name: 1.0, over: -1.0}, rate, level=level)

    def contrast(self, weights: Mapping[str, float], rate: str = "auc", *, level: float = 0.95) -> Estimate:
        r"""A weighted sum of the rates of several attacks, $\bar c = \sum_a w_a \bar r_a$, mean over models.

        $$ \bar c \pm t_\nu \sqrt{V_1 + V_2}, \qquad \nu = (V_1 + V_2)^2 / (V_1^2/\nu_1 + V_2^2/\nu_2), $$

        where $V_1$ is the variance of the mean over models, or over complementary pairs, the two of which count as one,
        and $V_2$ that over points, by leaving out one of 20 groups after the other. So the interval is for models
        trained on other halves of other such points. What both vary with is counted twice: it errs by being wide.

        Raises:
            ValueError: as `interval`.
        """
        arguments.number("level", level, above=0, below=1)
        values = self._sum(weights, lambda name: self._rates(name, rate))
        if self.panel.partner is not None:
            values = (values + values[self.panel.partner])[self.panel.first_of_pairs] / 2
        least, most = (-math.inf, math.inf) if len(weights) > 1 else (-1.0 if rate == "advantage" else 0.0, 1.0)
        known = all(self.rows[name].left for name in weights)
        left = self._sum(weights, lambda name: self.rows[name].left[rate]).mean(-1) if known else values
        parts = float(values.var() / len(values)), float(left.var(correction=0) * (len(left) - 1))
        total, middle = sum(parts), float(values.mean())
        freedom = total**2 / max(parts[0] ** 2 / (len(values) - 1) + parts[1] ** 2 / (len(left) - 1), 1e-300)
        half = float(special.stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total) if total > 0 else 0.0
        half = half if known else math.inf
        return Estimate(middle, max(middle - half, least), min(middle + half, most), n=len(values), level=level)

    def _sum(self, weights: Mapping[str, float], of: Callable[[str], Tensor]) -> Tensor:
        return torch.stack([weight * of(name) for name, weight in weights.items()]).sum(0)

    def __str__(self) -> str:
        """A table: a line for each attack."""
        lines = []
        for name, row in self.rows.items():
            found = "  ".join(f"{rate} {self.interval(name, rate)}" for rate in row.rates)
            lines.append(f"{name:<26}{row.entry.sees:<11}{'  '.join(filter(None, [found, row.missing]))}")
        return "\n".join(lines)

    def _rates(self, name: str, rate: str) -> Float64[Tensor, " models"]:
        row = self.rows[arguments.choice("name", name, self.rows)]
        return row.rates[arguments.choice("rate", rate, row.rates)]


def evaluate(
    panel: Panel,
    attacks: Sequence[str] | Mapping[str, Entry | Callable[[Panel], Tensor]] = tuple(ATTACKS),
    *,
    fprs: Sequence[float] = FPRS,
    generator: torch.Generator,
) -> Standing:
    """Run attacks against every model of a panel and judge them alike.

    Scores of all attacks are held, 8 bytes for each model and point, and several times as much while an attack runs or
    is judged. `audit.of_panel` runs the attacks on losses, of panels larger than memory.

    Args:
        panel: models, points and who was trained on what.
        attacks: names in `ATTACKS`; or attacks of your own by name, each an `Entry` or a function of the panel, and so
            in one line `evaluate(panel, {"mine": lambda panel: -panel.losses}, generator=…)`.
        fprs: rates of false alarms at which hits are counted, where there are outsiders enough to see them.
        generator: of the attacks that draw, on the device of the panel.

    Raises:
        ValueError: if a name is unknown, or an attack gives no finite score for each model and point.
    """
    if not isinstance(attacks, Mapping):
        attacks = {arguments.choice("attacks", name, ATTACKS): ATTACKS[name] for name in attacks}
    rows = {}
    for name, given in attacks.items():
        entry = given if isinstance(given, Entry) else Entry(plain(given))
        try:
            scores = entry.attack(panel, generator)
        except Hidden as hidden:
            rows[name] = Row(entry, None, {}, {}, str(hidden))
            continue
        models, points = panel.member.shape
        scores = arguments.real(f"scores of {name}", scores, "models points", models=models, points=points).double()
        rows[name] = Row(entry, scores, *_judged(panel, scores, fprs))
    return Standing(panel, rows)


def _judged(panel: Panel, scores: Tensor, fprs: Sequence[float]) -> tuple[dict[str, Tensor], dict[str, Tensor], str]:
    """The rates, those with groups of points left out, and what cannot be seen."""
    accused = loss_threshold.flag_members(scores, panel.member, panel.partner)
    fewest = int((~panel.member).sum(1).min())
    seen = [fpr for fpr in fprs if fewest * fpr * (1 + 1e-12) >= 1]
    unseen = [f"TPR at {fpr:g} needs ≥ {1 / fpr:,.0f} outsiders" for fpr in fprs if fpr not in seen]
    points = torch.arange(panel.member.shape[1], device=scores.device)
    groups = min(_GROUPS, len(points) // 2)
    left = []
    if groups > 1 and min(fewest, int(panel.member.sum(1).min())) > -(-len(points) // groups):
        for group in range(groups):
            kept = points[points % groups != group]
            left.append(_rates(scores[:, kept], accused[:, kept], panel.member[:, kept], seen))
    together = {rate: torch.stack([one[rate] for one in left]) for rate in (left[0] if left else ())}
    return _rates(scores, accused, panel.member, seen), together, "; ".join(unseen)


def _rates(scores: Tensor, accused: Tensor, member: Tensor, fprs: Sequence[float]) -> dict[str, Tensor]:
    ranked = Scores.from_mask(scores, member=member)
    shares = [(accused & kind).sum(1) / kind.sum(1).double() for kind in (member, ~member)]
    fewest = int(ranked.outsiders.min())  # of fewer points than were asked for, one may always be accused
    tpr = {f"tpr_at_{fpr}": ranked.tpr_at_fpr(max(fpr, 1 / fewest)) for fpr in fprs}
    return {"auc": ranked.auc(), "advantage": shares[0] - shares[1], **tpr}
