"""Audit a model of your own: how much does it reveal about its training rows?

Four functions give an `Audit`: `of_losses` takes saved losses, `of_models` trained models, `of_sklearn` a classifier
and `of_module` a PyTorch module, which they train. `one_run` and `of_trials` bound the ε of a training with noise from
below; `canaries_for` says how many canaries that takes. Arguments are arrays, tensors on any device, frames, sparse
matrices or lists, and are checked before anything is trained. Limits of the sample appear as notes. Unusable input
raises a `TypeError` or `ValueError` that says how to fix it. A score is larger for a likelier member.

```python
import numpy as np

from leakage import audit

draw = np.random.default_rng(0)
member = draw.random((64, 1000)) < 0.5  # 64 models, 1000 rows, each model trained on a random half
easiness = 4 * draw.random(1000)  # rows differ, in the same way for all models
logits = draw.normal(size=(64, 1000)) + easiness + 2 * member  # training raises a row's logit by 2
result = audit.of_losses(np.log1p(np.exp(-logits)), member, target=0)  # the others are its shadow models
best = result.strongest
print(f"{best.attack}: AUC {best.auc.estimate:.2f}")  # no attack can exceed Φ(√2) = 0.92
```

```text
LiRA: AUC 0.91
```
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leakage.audit.epsilon import canaries_for, of_trials, one_run
from leakage.audit.forms import Audit
from leakage.audit.gates import Gate
from leakage.audit.inputs import inputs_from_models, validate_inputs
from leakage.audit.run import check_options, run_audit
from leakage.audit.training import train_clones, train_modules
from leakage.metrics.scores import FPRS

__all__ = [
    "FPRS", "Audit", "Gate", "canaries_for", "of_losses", "of_models", "of_module", "of_sklearn", "of_trials",
    "one_run",
]  # fmt: skip


def of_losses(
    losses: Any = None,
    member: Any = None,
    *,
    member_losses: Any = None,
    outsider_losses: Any = None,
    target: int | None = None,
    population: Any = None,
    correct: Any = None,
    labels: Any = None,
    groups: Any = None,
    units: Any = None,
    features: Any = None,
    probabilities: bool = True,
    attacks: Mapping[str, Any] | None = None,
    fprs: Sequence[float] = FPRS,
    level: float = 0.95,
) -> Audit:
    """Audit models whose losses are known.

    Complementary pairs are found by themselves; in any other design all other models are shadow models of a target. So
    one model alone, one target beside shadow models that saw the rows (online) or never saw them (offline), and models
    that are each other's shadow models are all given in the same way. Of one model alone `member_losses` and
    `outsider_losses` will do.

    Probabilities of 0 and 1, as trees give them, are clipped to half of the least step that the models show, and a
    note says so. All functions of this module clip in this way, so do not clip before.

    Everything is held in memory: 64 models with a million rows in float32 take some 3 GB for one target. Of several
    targets everything is done up to eleven times, for the intervals.

    Args:
        losses: -log p of the true label in nats, (models, rows), or (rows) of one model.
        member: whether the model was trained on the row, in the same shape; or one row, that of the target, where the
            other models saw none of the rows.
        member_losses: in place of `losses` and `member`: those of one model on rows that it was trained on.
        outsider_losses: its losses on other rows. Labels and the like are then those of the members, followed by these.
        target: the one model that is attacked. By default all are that have members and outsiders.
        population: losses of every model on other rows, (models, z), that no model was trained on, for RMIA.
        correct: whether each model's prediction is right, for the gap attack, which sees labels only.
        labels: the class of each row, of any type, for slices.
        groups: another name for each row, for slices.
        units: a name for each row, such as the patient whose visit it is. Scores are averaged over the rows of a unit,
            and all numbers are then of units. Every model was trained on all rows of a unit or on none.
        features: what an attacker knows of each row, as numbers, (rows, d); `labels` are added. With it the audit tells
            members from outsiders without the model (`Audit.baseline`), and, where LiRA and RMIA have too few shadow
            models, compares each loss with those of outsiders with such features (quantile regression).
        probabilities: False for other losses than -log p, such as squared errors of a regression or minus the partial
            likelihood of a survival model; they may be negative. LiRA then compares the losses themselves instead of
            logits, and RMIA takes squared errors as those of Gaussian residuals.
        attacks: attacks of your own by name, as `leakage.evaluate` takes them: {"mine": lambda models: -models.losses}.
            Each is called again with some models left out, for the intervals, so it must read `models` alone.
        fprs: false positive rates at which true positive rates are measured.
        level: of the intervals.
    """
    options = check_options(fprs, level, attacks)
    more = {"target": target, "population": population, "correct": correct, "labels": labels, "groups": groups}
    more |= {"member_losses": member_losses, "outsider_losses": outsider_losses, "units": units}
    more |= {"features": features, "probabilities": probabilities}
    return run_audit(validate_inputs(losses, member, **more), options)


def of_models(
    models: Any,
    *,
    target: int | None = None,
    groups: Any = None,
    units: Any = None,
    attacks: Mapping[str, Any] | None = None,
    fprs: Sequence[float] = FPRS,
    level: float = 0.95,
) -> Audit:
    """Audit models that are trained already: by their losses, and by whether they are right.

    Models are asked one after the other, about all rows at once. Attacks that look at more than losses are run by
    `leakage.evaluate`. All other arguments are those of `of_losses`.

    Args:
        models: `leakage.TrainedModels`: models, points, labels and who was trained on what.
    """
    options = check_options(fprs, level, attacks)
    return run_audit(inputs_from_models(models, target=target, groups=groups, units=units), options)


def of_sklearn(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    models: int = 16,
    generator: Any = None,
    groups: Any = None,
    units: Any = None,
    attacks: Mapping[str, Any] | None = None,
    fprs: Sequence[float] = FPRS,
    level: float = 0.95,
) -> Audit:
    """Fit clones of a classifier on random halves of the rows and their complements, and audit them.

    All other arguments are those of `of_losses`.

    Args:
        estimator: any classifier or pipeline with `fit` and `predict_proba`; it stays as it is.
        X: rows of any kind that it takes: an array, a data frame, a sparse matrix, a list of texts. Numbers in arrays
            and frames are `features` of `of_losses`; there is no baseline, since halves differ by chance only.
        y: their labels, of any type. Those that occur in one half only have probability 0 under the other's model.
        models: how many clones, an even number; LiRA and RMIA need six.
        generator: a `torch.Generator` or `numpy.random.Generator` that draws the halves; by default one with seed 0.
        units: as in `of_losses`; halves are drawn of units.
    """
    options = check_options(fprs, level, attacks)
    how: dict[str, Any] = {"models": models, "generator": generator, "groups": groups, "units": units}
    inputs, notes = train_clones(estimator, X, y, **how, options=options)
    return run_audit(inputs, options, notes_on_rows=notes, drawn=True)


def of_module(
    factory: Callable[[], Any],
    train: Callable[[Any, Any, Any], Any] | None,
    X: Any,
    y: Any,
    *,
    models: int = 16,
    generator: Any = None,
    groups: Any = None,
    units: Any = None,
    attacks: Mapping[str, Any] | None = None,
    fprs: Sequence[float] = FPRS,
    level: float = 0.95,
    folder: Path | str | None = None,
    recipe: Any = None,
    device: Any = None,
) -> Audit:
    """Train modules on random halves of the rows and their complements, and audit them.

    All other arguments are those of `of_sklearn`.

    Args:
        factory: makes a new, untrained `nn.Module` that gives logits of each row: two or more, or one of class 1
            where classes are 0 and 1.
        train: trains a module in place, `train(module, X, y)`, on the rows it is given. Its draws from PyTorch's global
            stream are seeded for each model. None trains all modules at once, by `recipe`; they must have no dropout.
        X: the inputs, a tensor or an array, rows first; `features` as in `of_sklearn`.
        y: classes, whole numbers from 0.
        models: how many modules, an even number; LiRA and RMIA need six.
        folder: keeps what each finished model says, so that an interrupted audit goes on; of models that are trained at
            once, what all say in the end. A file counts only for the same data, halves, initial weights, `recipe` and
            kind of device.
            Name another folder if you change `train`: the code of `train` is not looked at, and files of the old one
            would be read.
        recipe: a `trainers.ensembles.Recipe`, where `train` is None; by default 30 epochs of Adam in batches of 64.
        device: where modules are trained and asked, such as "cuda": they are moved there, and `train` gets its rows
            there. By default that of the module's first parameter. Halves and initial weights are drawn on the CPU.
    """
    options = check_options(fprs, level, attacks)
    how: dict[str, Any] = {"models": models, "generator": generator, "groups": groups, "units": units}
    how |= {"folder": folder, "recipe": recipe, "device": device}
    inputs, notes = train_modules(factory, train, X, y, options, **how)
    return run_audit(inputs, options, notes_on_rows=notes, drawn=True)
