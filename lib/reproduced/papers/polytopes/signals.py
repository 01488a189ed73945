r"""All signals on the same targets: many models of one data set, each attacked with the help of the others.

Each model is trained on rows of its own. Signals are margin, kinks, cell distance and $\lVert A_P \rVert_F$, raw and
calibrated by the models that did not see the point. `kinks` are the smallest inputs of ReLUs; the cell distance divides
each by the length of its gradient. Combiners are boosted trees fitted on one other model, from whose references the
target is left out. The `answer` of a model, from one pass forward and back, has every class's log-posterior, the
entropy, the margin and the norm of the gradient. All this needs true labels.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.data.tabular import LabelledData
from leakage.draws import uniform
from leakage.membership import attack_models, hyperedges, posterior
from leakage.membership.calibration import calibrate_scores
from leakage.membership.polytopes import jacobian_norm
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from reproduced.papers.polytopes.shadow_attacks import AttackResult, Task, evaluate_scores, train_networks
from reproduced.runtime import Run

MODELS_PER_REPETITION = 12
"""Models of a repetition: with quarters of the data, few enough of them share a point."""
COMBINERS: Mapping[str, tuple[str, ...]] = {
    "margin": ("margin",),
    "answer": ("answer",),
    "answer and shuffled kinks": ("answer", "shuffled kinks"),
    "answer and kinks": ("answer", "kinks"),
    "answer and cell": ("answer", "cell distance"),
    "answer, kinks and cell": ("answer", "kinks", "cell distance"),
}
"""The signals, each raw and calibrated, that a combiner gets; `answer` stands for those that `raw_signals` calls so."""
STANDALONE_SIGNALS = ("margin", "kinks", "cell distance", "weight norm")
"""Signals that are attacks by themselves."""


def attack_by_signals(
    repetition: int,
    *,
    task: Task,
    models: int = MODELS_PER_REPETITION,
    targets: int | None = None,
    run: Run,
    rates: tuple[float, ...] = (0.01, 0.001),
    settings: attack_models.Settings | None = None,
) -> dict[str, AttackResult]:
    """Train `models` models on random rows of the task's data and attack the first `targets` of them with each signal.

    `repetition` numbers one repetition; with `run.seed` it fixes everything that is random. `settings` are those of the
    trees. The results are by signal (`raw: …`, `calibrated: …`, `combined: …`), for each target; accuracies are those
    of the best thresholds.
    """
    targets = models if targets is None else targets
    data, name = task.data, f"scoreboard/{repetition}"
    rows = _draw_rows(len(data), models, task.size, generator=run.stream(f"{name}/rows"))
    start = mlp.initial((models,), task.widths, generator=run.stream(f"{name}/weights"), dtype=torch.float32)
    networks = train_networks(start, task, rows, run=run, shuffles=f"{name}/shuffles")
    member = torch.zeros(models, len(data), dtype=torch.bool).scatter_(1, rows, True)
    raw = raw_signals(networks, data)
    lots = uniform(member.shape, generator=run.stream(f"{name}/control"), dtype=torch.float32)
    raw["shuffled kinks"] = raw["kinks"].gather(1, lots.argsort(-1))
    scores = {f"raw: {key}": raw[key] for key in STANDALONE_SIGNALS}
    scores |= {f"calibrated: {key}": calibrate_scores(raw[key], member) for key in STANDALONE_SIGNALS}
    answer = [key for key in raw if key.startswith("answer")] + ["margin"]
    for key, parts in COMBINERS.items():
        chosen = {one: raw[one] for part in parts for one in (answer if part == "answer" else [part])}
        scores[f"combined: {key}"] = torch.stack(
            [combine_signals(chosen, member, target=index, settings=settings) for index in range(targets)]
        )
    return {key: evaluate_scores(own[:targets], member=member[:targets], rates=rates) for key, own in scores.items()}


_OUTSIDE = 3  # models that have not seen a point: one may be the model itself, one the target, one is left
_DRAWS = 100


def _draw_rows(count: int, models: int, size: int, *, generator: torch.Generator) -> Int[Tensor, "models size"]:
    """Random rows for each model, drawn again until every point is outside of enough models to calibrate each."""
    for _ in range(_DRAWS):
        rows = uniform((models, count), generator=generator, dtype=torch.float32).argsort(-1)[:, :size]
        if int(torch.bincount(rows.flatten(), minlength=count).max()) <= models - _OUTSIDE:
            return rows
    raise ValueError(f"{models} models of {size} points each leave some of {count} points without references.")


def raw_signals(networks: Mlp, data: LabelledData) -> dict[str, Float[Tensor, "models n"]]:
    r"""The raw signals of every model at every point.

    Members lie closer to hyperedges, so the kinks and the cell distance have a minus sign. Those whose names begin with
    `answer` are the log-posteriors of the classes, the entropy, and the logarithm of the norm of the loss's gradient
    with respect to all parameters.
    """
    points, labels, found = data.features.double(), data.labels, []
    for index in range(len(networks.weights[0])):
        network = networks[index].to(DTYPE)
        heights = network.preactivations(points)
        logs = heights[-1].log_softmax(-1)
        signals = {
            "margin": posterior.label_logit(heights[-1], labels),
            "kinks": _kink_score(heights[:-1]),
            "cell distance": hyperedges.hyperedge_distance_score(network, points),
            "weight norm": jacobian_norm(network, tuple(height > 0 for height in heights[:-1])),
            "answer: entropy": (logs.exp() * logs).sum(-1),
            "answer: gradient": -_gradient_norm(network, points, labels).log(),
        }
        found.append(signals | {f"answer: class {kind}": column for kind, column in enumerate(logs.unbind(-1))})
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}


def _kink_score(inputs: Sequence[Float[Tensor, "n _"]]) -> Float[Tensor, " n"]:
    r"""Minus the mean of the four smallest $\lvert z_i \rvert$ of all neurons, not divided by $\lVert w^*_i \rVert$."""
    sizes = torch.cat([*inputs], dim=-1).abs()
    return -sizes.topk(min(hyperedges.NEAREST, sizes.shape[-1]), largest=False).values.mean(-1)


def _gradient_norm(network: Mlp, points: Tensor, labels: Tensor) -> Float[Tensor, " n"]:
    r"""The norm of each loss's gradient, squared $\sum_l \lVert\delta_l\rVert^2 (\lVert a^{l-1}\rVert^2 + 1)$."""
    *heights, outputs = network.preactivations(points)
    inputs = [points, *(height.relu() for height in heights)]
    behind = outputs.log_softmax(-1).exp() - torch.nn.functional.one_hot(labels, outputs.shape[-1])
    total = torch.zeros_like(behind[:, 0])
    for layer in reversed(range(len(inputs))):
        total = total + behind.square().sum(-1) * (inputs[layer].square().sum(-1) + 1)
        if layer:
            behind = (behind @ network.weights[layer]) * (heights[layer - 1] > 0)
    return total.sqrt().clamp_min(1e-300)


def combine_signals(
    raw: Mapping[str, Float[Tensor, "models n"]],
    member: Bool[Tensor, "models n"],
    *,
    target: int,
    settings: attack_models.Settings | None = None,
) -> Float[Tensor, " n"]:
    """Boosted trees on raw and calibrated signals, fitted on the model after the target, applied to the target.

    While they are fitted, the target is no model's reference.
    """
    shadow = (target + 1) % len(member)
    known, asked = [], []
    for score in raw.values():
        known += [score[shadow], calibrate_scores(score, member, without=target)[shadow]]
        asked += [score[target], calibrate_scores(score, member)[target]]
    names = {"signals": torch.stack(known, 1)}, {"signals": torch.stack(asked, 1)}
    return attack_models.score_with_trees(names[0], member[shadow], names[1], settings=settings)["signals"]
