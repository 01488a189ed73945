r"""All signals on the same targets: many models of one data set, each attacked with the help of the others.

Each model is trained on rows of its own and is the target once. Signals are margin, signed DeepFool distance, cell
distance and $\lVert A_P \rVert_F$, raw and calibrated by the models that did not see the point; combiners are boosted
trees fitted on one other model, from whose references the target is left out. All this needs true labels.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import attack_models, posterior
from leakage.attacks.membership.boundary_distance import Projections, deepfool
from leakage.attacks.membership.calibration import calibrated
from leakage.data.labelled import Labelled
from leakage.geometry.distances import nearest
from leakage.geometry.jacobian_norms import frobenius_norm
from leakage.geometry.patterns import pattern
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.studies.polytopes.shadow_pairs import Task
from leakage.studies.polytopes.standings import Standing, Table, standing, table
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.perceptrons import Perceptrons

_OUTSIDE = 3  # models a point must be outside of: one may be the model itself, one the target, one is left
_DRAWS = 100
NEAREST = 4  # hyperedges whose mean distance is the cell distance
COMBINERS: Mapping[str, tuple[str, ...]] = {
    "margin": ("margin",),
    "margin and cell": ("margin", "cell distance"),
}
"""Which signals, each raw and calibrated, a combiner is given."""


class Board(NamedTuple):
    """All signals on the same targets.

    Attributes:
        rates: of false positives at which the true positive rate is given.
        scores: by signal (`raw: …`, `calibrated: …`, `combined: …`) each target's; accuracies are those of the best
            thresholds.
        reached: the share of points at which DeepFool found another label, for each target.
    """

    rates: tuple[float, ...]
    scores: Table[Standing]
    reached: Float[Tensor, " models"]


def board(
    pool: int,
    *,
    task: Task,
    models: int = 16,
    seed: int = 0,
    rates: tuple[float, ...] = (0.01, 0.001),
) -> Board:
    """Train `models` targets on random rows of the task's data and attack each with each signal.

    Args:
        pool: names one repetition; with `seed` it fixes everything that is random.
        task: what is trained on what; `size` rows each.
        models: targets, which are each other's references.
        seed: of the run.
        rates: false positive rates at which the true positive rate is given.

    Raises:
        ValueError: as `shadow_pairs`, or if so few models would leave a point without references.
    """
    data, device, name = task.data, task.device, f"scoreboard/{pool}"
    rows = _rows(len(data), models, task.size, generator=stream(seed, f"{name}/rows", device))
    start = mlp.initial((models,), task.widths, generator=stream(seed, f"{name}/weights", device), dtype=torch.float32)
    shuffles = stream(seed, f"{name}/shuffles", device)
    examples = Examples((data.features,), data.labels)
    networks = ensembles.train(Perceptrons.of(start), examples, rows, task.recipe, generator=shuffles)
    member = torch.zeros(models, len(data), dtype=torch.bool, device=device).scatter_(1, rows, True)
    raw, reached = signals(networks, data)
    scores = {f"raw: {key}": value for key, value in raw.items()}
    scores |= {f"calibrated: {key}": calibrated(value, member) for key, value in raw.items()}
    for key, parts in COMBINERS.items():
        chosen = {part: raw[part] for part in parts}
        scores[f"combined: {key}"] = torch.stack([combined(chosen, member, target=i) for i in range(models)])
    judged = {name: standing(values, member=member, rates=rates) for name, values in scores.items()}
    return Board(tuple(rates), table(judged), reached)


def signals(networks: Mlp, data: Labelled) -> tuple[dict[str, Float[Tensor, "models n"]], Float[Tensor, " models"]]:
    r"""The four raw signals of every model at every point, and where DeepFool got to.

    The DeepFool distance is negative where the prediction is wrong. Members lie closer to hyperedges, so the cell
    distance has a minus sign. A distance that was not found is put at the largest that was.
    """
    found = [_signals(networks[i], data) for i in range(len(networks.weights[0]))]
    names = ("margin", "DeepFool distance", "cell distance", "weight norm")
    stacked = {name: torch.stack([one[place] for one in found]) for place, name in enumerate(names)}
    return stacked, torch.stack([one[-1] for one in found])


def _signals(network: Mlp, data: Labelled) -> tuple[Tensor, ...]:
    network, points, labels = network.to(torch.float64), data.features.double(), data.labels
    logits = network(points)
    reach = deepfool(network, points, settings=Projections())
    farthest = torch.where(reach.reached, reach.distances, 0.0).max()
    distance = torch.where(reach.reached, reach.distances, farthest)
    signed = torch.where(logits.argmax(-1) == labels, distance, -distance)
    cell = -nearest(network, points, count=min(NEAREST, sum(network.widths[1:-1]))).distances.mean(-1)
    norm = frobenius_norm(network, pattern(network, points))
    margin = posterior.margin(logits, labels)
    return margin, signed, cell, norm, reach.reached.double().mean()


def combined(
    raw: Mapping[str, Float[Tensor, "models n"]],
    member: Bool[Tensor, "models n"],
    *,
    target: int,
    settings: attack_models.Settings | None = None,
) -> Float[Tensor, " n"]:
    """Boosted trees on raw and calibrated signals, fitted on the model after the target, applied to the target.

    The target is nobody's reference while they are fitted: see `calibrated`.

    Raises:
        ValueError: as `calibrated`.
    """
    shadow = (target + 1) % len(member)
    known = [
        torch.stack([score[shadow], calibrated(score, member, without=target)[shadow]], 1) for score in raw.values()
    ]
    asked = [torch.stack([score[target], calibrated(score, member)[target]], 1) for score in raw.values()]
    names = {"signals": torch.cat(known, 1)}, {"signals": torch.cat(asked, 1)}
    return attack_models.boosted(names[0], member[shadow], names[1], settings=settings)["signals"]


def _rows(count: int, models: int, size: int, *, generator: torch.Generator) -> Int[Tensor, "models size"]:
    """Random rows for each model, drawn again until every point is outside of enough models to calibrate each."""
    arguments.count("size", size, least=1, most=count - 1)
    for _ in range(_DRAWS):
        drawn = torch.rand((models, count), generator=generator, device=generator.device)
        rows = drawn.argsort(-1)[:, :size]
        if int(torch.bincount(rows.flatten(), minlength=count).max()) <= models - _OUTSIDE:
            return rows
    raise ValueError(
        f"`models` = {models} leaves some of the {count} points without references if each is trained on {size}; "
        "train more models, or each on fewer points."
    )
