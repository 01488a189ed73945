r"""Networks trained to be attacked: what they answer to their training points and to fresh points of the same law.

One call is one point of an experiment's grid, so that `sweeps.sweep` can keep it; results are plain tensors by name.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from leakage.data import mixtures
from leakage.models import two_layer
from leakage.models.two_layer import TwoLayer
from leakage.runtime import stream
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Recipe


def gaussian_targets(
    dimension: int,
    *,
    law: str | mixtures.Law = "mixture",
    rows: int,
    width: int,
    fresh: int,
    runs: int,
    recipe: Recipe,
    seed: int,
    snapshots: Sequence[int] = (),
    output_scale: float = 1.0,
    device: torch.device | str = "cpu",
) -> dict[str, Tensor]:
    r"""Train `runs` two-layer networks on `rows` points each of a Gaussian law and ask them about `fresh` others.

    Args:
        dimension: d, of any size: the cost does not depend on it once it exceeds `rows`.
        law: of the points and labels (`data.mixtures`).
        rows: n.
        width: k.
        fresh: fresh points for each network.
        runs: networks, each with its own data and initialisation.
        recipe: of the training (`trainers.margin_flow`).
        seed: of data and initialisation; the same for every recipe, so that recipes are compared on the same draws.
        snapshots: step counts at which the networks are asked, too.
        output_scale: multiplies the initial output weights.
        device: where to compute.

    Returns:
        `margins` $q_i = y_i \Phi(x_i)$ `(runs, n)`; `fresh` $\Phi(x)$ `(runs, t)`; `fresh_labels`; `steps` taken. With
        snapshots also `margins_then` `(snapshots, runs, n)` and `fresh_then` `(snapshots, runs, t)`.

    Raises:
        ValueError: as `mixtures.draw`, `two_layer.initial` and `margin_flow.train`.
    """
    name = f"{law}/{dimension}/{rows}/{width}"
    sample = mixtures.draw(
        law,
        rows=rows,
        fresh=fresh,
        dimension=dimension,
        runs=runs,
        generator=stream(seed, f"points/{name}", device),
    )
    start = two_layer.initial(
        (runs,),
        width,
        sample.train.shape[-1],
        generator=stream(seed, f"weights/{name}", device),
        output_scale=output_scale,
    )
    trained = margin_flow.train(start, sample.train, sample.labels, recipe, snapshots=snapshots)
    asked = [fresh_outputs(model, sample, stream(seed, f"unseen/{name}", device)) for model in trained.snapshots]
    then = {
        "margins_then": [sample.labels * model(sample.train) for model in trained.snapshots],
        "fresh_then": asked,
    }
    return {
        "margins": trained.margins,
        "fresh": fresh_outputs(trained.model, sample, stream(seed, f"unseen/{name}", device)),
        "fresh_labels": sample.fresh_labels,
        "steps": trained.steps,
        **{key: torch.stack(values) for key, values in then.items() if values},
    }


def fresh_outputs(
    model: TwoLayer,
    sample: mixtures.Sample,
    generator: torch.Generator,
    *,
    hidden_scale: float = two_layer.HIDDEN_SCALE,
) -> Tensor:
    r"""$\Phi(x)$ of networks trained on `sample.train` at `sample.fresh`, with the weights off the span as they began.

    No gradient ever moves those weights, so their contribution to a pre-activation is
    $N(0, \text{hidden\_scale}^2 \cdot \text{radius}^2)$ whatever the training. Drawing it anew for each fresh point is
    the exact law of each answer; only correlations between answers of one network are dropped.
    """
    return model(sample.fresh, generator=generator, spread=hidden_scale * sample.radius)
