r"""Every membership attack of the book as a row of one table: what it sees of the target, what it knows, whose it is.

A row's attack takes a `Panel` and a generator and gives scores (models, points): larger for likelier members, finite,
in float64, on the panel's device. It is blind: of `member` it uses the rows of shadow models only, never the target's
or its partner's. Where the points stand in the panel tells it nothing. Nothing here judges, or trains a target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.attacks.membership import (
    attack_models,
    boundary_distance,
    hyperedges,
    label_only,
    loss_threshold,
    margin,
    posterior,
)
from leakage.attacks.membership.attack_models import Question
from leakage.attacks.membership.calibration import calibrate_scores
from leakage.attacks.membership.label_only import Jumps
from leakage.attacks.membership.lira import lira_of_logits
from leakage.attacks.membership.panels import Panel
from leakage.attacks.membership.rmia import rmia
from leakage.geometry.jacobian_norms import frobenius_norm
from leakage.geometry.patterns import pattern
from leakage.metrics.scores import Scores

Knowledge = Literal["true label", "shadow models"]
"""What an attacker may have besides the points."""
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
    knows: frozenset[Knowledge] = frozenset()
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
        sizes: dict[str, Any] = dict(amount=amount * unit, copies=_COPIES, noise=kind, generator=generator)
        tried.append([label_only.noise_robustness(one, rows, labels, **sizes) for one in panel.asked])
    scores = torch.stack([torch.stack(one).double() for one in tried])
    areas = Scores.from_mask(scores, member=panel.member).auc()  # of every amount on every model
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
    return boundary_distance.capped(distances) * panel.correct


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
        questions = []
        for target, asked in enumerate(features):
            shadow = panel.shadow_of(target)
            questions.append(Question(name, features[shadow], panel.member[shadow], asked, generator))
        return torch.stack([found["top-3"].double() for found in attack_models.together(questions)])

    return _settled(call)


def _inside(measure: Callable[..., Tensor]) -> Callable[[Panel], Tensor]:
    """A quantity of every opened network at every point."""
    return lambda panel: torch.stack([measure(network, panel.rows) for network in panel.weights])


_cell = _inside(hyperedges.cell_score)
_deepfool = _inside(lambda network, rows: boundary_distance.deepfool(network, rows).distances)
_certified = _inside(boundary_distance.certified_radius)
_norm = _inside(lambda network, rows: frobenius_norm(network, pattern(network, rows)))


def _lira(panel: Panel, **how: Any) -> Float[Tensor, "models points"]:
    panel.need_shadows(2)
    return lira_of_logits(panel.margins, panel.member, panel.partner, **how)


def _rmia(panel: Panel, **how: Any) -> Float[Tensor, "models points"]:
    panel.need_shadows(2)
    return rmia(panel.losses, panel.member, panel.partner, **how)


def _compared(panel: Panel, scores: Tensor) -> Float[Tensor, "models points"]:
    """Scores less those of shadow models that were not trained on the point."""
    return calibrate_scores(scores, panel.member, panel.partner)


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def plain(attack: Callable[[Panel], Tensor]) -> Attack:
    """An attack that draws nothing."""
    return lambda panel, generator: attack(panel)


def _thresholds(scores: Callable[..., Tensor]) -> Attack:
    return plain(lambda panel: scores(panel.losses, panel.member, panel.partner))


_LABEL: frozenset[Knowledge] = frozenset({"true label"})
_SHADOWS: frozenset[Knowledge] = frozenset({"shadow models"})
_BOTH = _LABEL | _SHADOWS

ATTACKS: Mapping[str, Entry] = {
    "gap": Entry(plain(lambda panel: panel.correct.double()), "label", _LABEL, "yeom2018privacy"),
    "noise": Entry(_settled(_noise), "label", _BOTH, "choquette2021label", "the amount is tuned on shadow models"),
    "HopSkipJump": Entry(_settled(_jumps), "label", _LABEL, "chen2020hopskipjump"),
    "loss": Entry(plain(lambda panel: panel.margins), "posterior", _LABEL, "yeom2018privacy"),
    "global threshold": Entry(
        _thresholds(loss_threshold.global_scores), "posterior", _BOTH, "tan2023blessing", "ranks as the loss does"
    ),
    "sample threshold": Entry(_thresholds(loss_threshold.sample_scores), "posterior", _BOTH, "ye2021enhanced"),
    "calibrated loss": Entry(
        plain(lambda panel: _compared(panel, panel.margins)), "posterior", _BOTH, "watson2022importance"
    ),
    "LiRA": Entry(plain(_lira), "posterior", _BOTH, "carlini2022membership"),
    "LiRA, own variance": Entry(plain(partial(_lira, variance="own")), "posterior", _BOTH, "carlini2022membership"),
    "LiRA, offline": Entry(plain(partial(_lira, offline=True)), "posterior", _BOTH, "carlini2022membership"),
    "RMIA": Entry(plain(_rmia), "posterior", _BOTH, "zarifzadeh2024low"),
    "RMIA, offline": Entry(plain(partial(_rmia, offline=True)), "posterior", _BOTH, "zarifzadeh2024low"),
    "ML-Leaks, network": Entry(_classified("NN"), "posterior", _SHADOWS, "salem2019mlleaks"),
    "ML-Leaks, trees": Entry(_classified("GBDT"), "posterior", _SHADOWS, "peinemann2021inside"),
    "margin size": Entry(plain(_size), "margin", frozenset(), "smorodinsky2024provable"),
    "margin equality": Entry(
        plain(_equality), "margin", _SHADOWS, "smorodinsky2024provable", "for networks near a KKT point"
    ),
    "DeepFool": Entry(
        plain(lambda panel: _where_right(panel, _deepfool(panel))), "weights", _LABEL, "moosavi2016deepfool"
    ),
    "certified radius": Entry(
        plain(lambda panel: _where_right(panel, _certified(panel))), "weights", _LABEL, note="from below"
    ),
    "cell distance": Entry(plain(_cell), "weights", frozenset(), "peinemann2021inside"),
    "calibrated cell distance": Entry(
        plain(lambda panel: _compared(panel, _cell(panel))), "weights", _SHADOWS, "watson2022importance"
    ),
    "weight norm": Entry(plain(_norm), "weights", frozenset(), "peinemann2021inside"),
}
"""The membership attacks of the book. Adding one is a line here, and its algorithm in `attacks.membership`."""
