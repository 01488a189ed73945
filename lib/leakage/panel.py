r"""Every membership attack of the book on one panel of models: one table, one protocol, one judge.

`evaluate(panel, generator=…)` runs the attacks of `ATTACKS`, or yours, against every model of a `Panel`. A score is
(models, points), larger for likelier members, finite, and blind: an attack may use the membership rows of all models
but the target's and its partner's. What a panel does not show (weights of a forest, logits where only losses were kept)
is said in the attack's row and raises nothing. Nothing here trains a target.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import (
    attack_models,
    boundary_distance,
    hyperedges,
    label_only,
    loss_threshold,
    margin,
    posterior,
    shadow_models,
)
from leakage.attacks.membership.calibration import calibrated
from leakage.attacks.membership.label_only import Jumps
from leakage.attacks.membership.panels import Hidden, Panel
from leakage.geometry.jacobian_norms import frobenius_norm
from leakage.geometry.patterns import pattern
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.metrics.scores import FPRS, marked

Attack = Callable[[Panel, torch.Generator], Float[Tensor, "models points"]]
"""From a panel, and a stream of random numbers, to scores."""

_JUMPS = Jumps(iterations=2, directions=40)
_COPIES = 32  # noisy ones of each point, for each amount of noise
_NOISES = {"flip": (0.02, 0.05, 0.1, 0.2), "gaussian": (0.05, 0.15, 0.4, 1.0)}  # of bits; of the median gap of points


@dataclass(frozen=True)
class Entry:
    """An attack and its terms.

    Attributes:
        attack: from panel and generator to scores.
        sees: of the target's answers the `label`, the `posterior`, the `margin` of its two largest logits, or the
            `weights`.
        knows: besides the points.
        source: key in the book's references; empty for ours and for yours.
        note: what a reader of its row should know.
    """

    attack: Attack
    sees: Literal["label", "posterior", "margin", "weights"] = "posterior"
    knows: frozenset[Literal["true label", "shadow models"]] = frozenset()
    source: str = ""
    note: str = ""


# ── the attacks that are more than a call ───────────────────────────────────────────────────────────────────────────


def _settled(attack: Attack) -> Attack:
    """The attack on the points in an order of their own, so that what it draws for a point does not follow its row."""

    def call(panel: Panel, generator: torch.Generator) -> Tensor:
        other, order = panel.settled
        found = attack(other, generator)
        return torch.empty_like(found).index_copy_(1, order, found)

    return call


def _noise(panel: Panel, generator: torch.Generator) -> Float[Tensor, "models points"]:
    """Robustness to noise of that amount, of four, which finds most members of the shadow models."""
    rows, labels = panel.rows, panel.truth
    kind = "flip" if bool(((rows == 0) | (rows == 1)).all()) else "gaussian"
    unit = 1.0 if kind == "flip" else _gap(rows)
    tried = []
    for amount in _NOISES[kind]:
        sizes = dict(amount=amount * unit, copies=_COPIES, noise=kind, generator=generator)
        tried.append([label_only.noise_robustness(one, rows, labels, **sizes) for one in panel.asked])
    scores = torch.stack([torch.stack(one).double() for one in tried])
    areas = marked(scores, member=panel.member).auc()  # of every amount on every model
    best = (areas @ panel.shadows.to(areas).mT).argmax(0)
    return scores[best, torch.arange(len(best), device=best.device)]


def _gap(rows: Float[Tensor, "points d"]) -> float:
    """The median distance of a point to the nearest other one."""
    apart = torch.cdist(rows, rows).fill_diagonal_(torch.inf).amin(1)
    return max(float(apart.median()), torch.finfo(torch.float64).tiny)


def _jumps(panel: Panel, generator: torch.Generator) -> Float[Tensor, "models points"]:
    found = [
        label_only.hop_skip_jump(one, panel.rows, panel.rows, jumps=_JUMPS, generator=generator).distances
        for one in panel.asked
    ]
    return _where_right(panel, torch.stack(found))


def _where_right(panel: Panel, distances: Tensor) -> Float[Tensor, "models points"]:
    """Distances to another label, 0 for a point whose label is wrong as it is, and finite."""
    return boundary_distance.capped(distances) * posterior.correct(panel.logits, panel.truth)


def _size(panel: Panel) -> Float[Tensor, "models points"]:
    """By how much the largest logit leads: |Φ| of a network of two classes."""
    first, second = panel.logits.topk(2, dim=-1).values.unbind(-1)
    return margin.size_score(first - second)


def _equality(panel: Panel) -> Float[Tensor, "models points"]:
    """How close |Φ| is to the mean margin of the shadow models."""
    sizes = _size(panel)
    least = sizes.masked_fill(~panel.member, torch.inf).amin(1)
    shadows = panel.shadows.to(least)
    estimated = (shadows @ least) / shadows.sum(1)
    return margin.distance_score(sizes, estimated.clamp_min(torch.finfo(torch.float64).tiny))


def _classified(name: str) -> Attack:
    """A classifier of ML-Leaks, fitted on one shadow model's three largest posteriors."""

    def call(panel: Panel, generator: torch.Generator) -> Tensor:
        features = [{"top-3": one} for one in posterior.top(panel.logits)]
        found = []
        for target, asked in enumerate(features):
            shadow = panel.shadow_of(target)
            fitted = attack_models.MODELS[name](features[shadow], panel.member[shadow], asked, generator=generator)
            found.append(fitted["top-3"].double())
        return torch.stack(found)

    return _settled(call)


def _inside(measure: Callable[..., Tensor]) -> Callable[[Panel], Tensor]:
    """A quantity of every opened network at every point."""
    return lambda panel: torch.stack([measure(network, panel.rows) for network in panel.weights])


_cell = _inside(hyperedges.cell_score)
_deepfool = _inside(lambda network, rows: boundary_distance.deepfool(network, rows).distances)
_certified = _inside(boundary_distance.certified_radius)
_norm = _inside(lambda network, rows: frobenius_norm(network, pattern(network, rows)))


def _lira(panel: Panel, **how: object) -> Float[Tensor, "models points"]:
    panel.need_shadows(2)
    return shadow_models.lira_of_logits(panel.margins, panel.member, panel.partner, **how)


def _rmia(panel: Panel, **how: object) -> Float[Tensor, "models points"]:
    panel.need_shadows(2)
    return shadow_models.rmia(panel.losses, panel.member, panel.partner, **how)


def _compared(panel: Panel, scores: Tensor) -> Float[Tensor, "models points"]:
    """Scores less those of shadow models that were not trained on the point."""
    return calibrated(scores, panel.member, panel.partner)


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(attack: Callable[[Panel], Tensor]) -> Attack:
    """An attack that draws nothing."""
    return lambda panel, generator: attack(panel)


def _thresholds(scores: Callable[..., Tensor]) -> Attack:
    return _plain(lambda panel: scores(panel.losses, panel.member, panel.partner))


_LABEL, _SHADOWS = frozenset({"true label"}), frozenset({"shadow models"})
_BOTH = _LABEL | _SHADOWS

ATTACKS: Mapping[str, Entry] = {
    "gap": Entry(
        _plain(lambda panel: posterior.correct(panel.logits, panel.truth)), "label", _LABEL, "yeom2018privacy"
    ),
    "noise": Entry(_settled(_noise), "label", _BOTH, "choquette2021label", "the amount is tuned on shadow models"),
    "HopSkipJump": Entry(_settled(_jumps), "label", _LABEL, "chen2020hopskipjump"),
    "loss": Entry(_plain(lambda panel: panel.margins), "posterior", _LABEL, "yeom2018privacy"),
    "global threshold": Entry(
        _thresholds(loss_threshold.global_scores), "posterior", _BOTH, "tan2023blessing", "ranks as the loss does"
    ),
    "sample threshold": Entry(_thresholds(loss_threshold.sample_scores), "posterior", _BOTH, "ye2021enhanced"),
    "calibrated loss": Entry(
        _plain(lambda panel: _compared(panel, panel.margins)), "posterior", _BOTH, "watson2022importance"
    ),
    "LiRA": Entry(_plain(_lira), "posterior", _BOTH, "carlini2022membership"),
    "LiRA, own variance": Entry(
        _plain(partial(_lira, variance="own")), "posterior", _BOTH, "carlini2022membership"
    ),
    "LiRA, offline": Entry(_plain(partial(_lira, offline=True)), "posterior", _BOTH, "carlini2022membership"),
    "RMIA": Entry(_plain(_rmia), "posterior", _BOTH, "zarifzadeh2024low"),
    "RMIA, offline": Entry(_plain(partial(_rmia, offline=True)), "posterior", _BOTH, "zarifzadeh2024low"),
    "ML-Leaks, network": Entry(_classified("NN"), "posterior", _SHADOWS, "salem2019mlleaks"),
    "ML-Leaks, trees": Entry(_classified("GBDT"), "posterior", _SHADOWS, "peinemann2021inside"),
    "margin size": Entry(_plain(_size), "margin", frozenset(), "smorodinsky2024provable"),
    "margin equality": Entry(
        _plain(_equality), "margin", _SHADOWS, "smorodinsky2024provable", "for networks near a KKT point"
    ),
    "DeepFool": Entry(
        _plain(lambda panel: _where_right(panel, _deepfool(panel))), "weights", _LABEL, "moosavi2016deepfool"
    ),
    "certified radius": Entry(
        _plain(lambda panel: _where_right(panel, _certified(panel))), "weights", _LABEL, note="from below"
    ),
    "cell distance": Entry(_plain(_cell), "weights", frozenset(), "peinemann2021inside"),
    "calibrated cell distance": Entry(
        _plain(lambda panel: _compared(panel, _cell(panel))), "weights", _SHADOWS, "watson2022importance"
    ),
    "weight norm": Entry(_plain(_norm), "weights", frozenset(), "peinemann2021inside"),
}
"""The membership attacks of the book. Adding one is a line here, and its algorithm in `attacks.membership`."""


# ── the judge ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        values = self._rates(name, rate)
        if over is not None:
            values = values - self._rates(over, rate)
        if self.panel.partner is not None:
            values = (values + values[self.panel.partner])[self.panel.first_of_pairs] / 2
        return mean_interval(values, level=level)

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
        entry = given if isinstance(given, Entry) else Entry(_plain(given))
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
    # Thresholds are for losses: the places of the scores, from the largest down, are as good.
    places = (-scores).unique(return_inverse=True)[1].double()
    accused = loss_threshold.global_scores(places, panel.member, panel.partner) > 0
    shares = [(accused & kind).sum(1) / kind.sum(1).double() for kind in (panel.member, ~panel.member)]
    found = {"auc": ranked.auc(), "advantage": shares[0] - shares[1]}
    unseen = []
    for fpr in fprs:
        if int(ranked.outsiders.min()) * fpr * (1 + 1e-12) < 1:
            unseen.append(f"TPR at {fpr:g} needs ≥ {1 / fpr:,.0f} outsiders")
        else:
            found[f"tpr_at_{fpr}"] = ranked.tpr_at_fpr(fpr)
    return found, "; ".join(unseen)
