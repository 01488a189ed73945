r"""Every membership attack of the book on one panel of models: one table, one protocol, one judge.

`evaluate(panel, generator=…)` runs the attacks of `ATTACKS`, or yours, against every model of a `Panel`. A score is
(models, points), larger for likelier members, finite, and blind: an attack may use the membership rows of all models
but the target's and its partner's. What a panel does not show (weights of a forest, logits where only losses were kept)
is said in the attack's row and raises nothing. Nothing here trains a target.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import loss_threshold
from leakage.attacks.membership.panels import Hidden, Panel
from leakage.attacks.membership.table import ATTACKS, Entry, plain
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.metrics.scores import FPRS, marked


class Row(NamedTuple):
    """What one attack achieves against each model.

    Attributes:
        entry: the attack's terms.
        scores: larger for likelier members; None where the panel hides what the attack needs.
        rates: `auc`, `advantage` and, for each rate of false alarms, `tpr_at_<fpr>`, one number a model. The advantage
            is that of the threshold which is best on the shadow models.
        missing: what the panel or the sample does not show, in words.
    """

    entry: Entry
    scores: Float64[Tensor, "models points"] | None
    rates: dict[str, Float64[Tensor, " models"]]
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

        Student's t over models, or over complementary pairs, the two of which count as one. It speaks of models trained
        on other halves of *these* points.

        Raises:
            ValueError: if an attack or a rate is not there.
        """
        found = mean_interval(self.each(name, rate, over=over), level=level)
        least, most = (-1.0, 1.0) if over is not None or rate == "advantage" else (0.0, 1.0)
        return Estimate(found.estimate, max(found.low, least), min(found.high, most), found.n, level)

    def each(self, name: str, rate: str = "auc", *, over: str | None = None) -> Float64[Tensor, " independent"]:
        """The rate or the difference that `interval` is about, for each model or complementary pair.

        Raises:
            ValueError: as `interval`.
        """
        values = self._rates(name, rate)
        if over is not None:
            values = values - self._rates(over, rate)
        if self.panel.partner is None:
            return values
        return (values + values[self.panel.partner])[self.panel.first_of_pairs] / 2

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
            rows[name] = Row(entry, None, {}, str(hidden))
            continue
        models, points = panel.member.shape
        scores = arguments.real(f"scores of {name}", scores, "models points", models=models, points=points).double()
        rows[name] = Row(entry, scores, *_judged(panel, scores, fprs))
    return Standing(panel, rows)


def _judged(panel: Panel, scores: Tensor, fprs: Sequence[float]) -> tuple[dict[str, Tensor], str]:
    """The rates, and what cannot be seen."""
    ranked = marked(scores, member=panel.member)
    # Thresholds are for losses, which are small for members and never negative.
    accused = loss_threshold.global_scores(scores.amax() - scores, panel.member, panel.partner) > 0
    shares = [(accused & kind).sum(1) / kind.sum(1).double() for kind in (panel.member, ~panel.member)]
    found = {"auc": ranked.auc(), "advantage": shares[0] - shares[1]}
    unseen = []
    for fpr in fprs:
        if int(ranked.outsiders.min()) * fpr * (1 + 1e-12) < 1:
            unseen.append(f"TPR at {fpr:g} needs ≥ {1 / fpr:,.0f} outsiders")
        else:
            found[f"tpr_at_{fpr}"] = ranked.tpr_at_fpr(fpr)
    return found, "; ".join(unseen)
