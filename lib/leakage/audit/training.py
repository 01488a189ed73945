"""Train copies of a user's model, each on a random half of the rows, and evaluate them on every row.

Models come in pairs: the second model is trained on the rows that the first leaves out. Each model gives, for each row,
the loss of its label and whether the prediction is right.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples
from torch import Tensor, nn
from tqdm import tqdm

from leakage import arguments, store
from leakage.arrays import number_units, numeric_features, to_classes, to_floats, to_generator, to_inputs, to_rows
from leakage.audit.inputs import ROWS_ASKED, AuditInputs, logits_of_network, validate_inputs
from leakage.audit.notes import find_duplicate_rows
from leakage.audit.run import AuditOptions, try_attacks
from leakage.data.membership_splits import complementary_masks
from leakage.draws import integers, uniform
from leakage.models.classifier import ModuleClassifier, two_logits
from leakage.models.initialisation import Stack, initial
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, ModuleEnsemble, Recipe, cross_entropies

_RECIPE = Recipe(epochs=30, batch=64)
_FEW_OF_A_CLASS = 10  # in one half: what divides the rows again, as cross-validation does, may find none
_CALIBRATE = "wrap it in scikit-learn's CalibratedClassifierCV, which adds probabilities"
_FOR_REGRESSION = "for a regressor, train copies and give squared errors to `audit.of_losses(…, probabilities=False)`"
Factory = Callable[[], Any]
Train = Callable[[Any, Any, Any], Any]
Answers = tuple[Float[Tensor, "... rows"], Bool[Tensor, "... rows"]]
"""Losses, and whether predictions are right: only these are kept of a trained model, not its weights."""


def train_clones(
    estimator: Any, X: Any, y: Any, *, models: int, generator: Any, groups: Any, units: Any, options: AuditOptions
) -> tuple[AuditInputs, list[str]]:
    """Inputs of an audit, and notes, from trained clones of a classifier; see `audit.of_sklearn`."""
    _check_estimator(estimator)
    X, labels = to_rows("X", X), to_classes("y", y)
    if _num_samples(X) != len(labels):
        raise ValueError(f"`X` and `y` must have equally many rows, got {_num_samples(X)} and {len(labels)}.")
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"`y` must be classes; {_FOR_REGRESSION}: {error}") from error
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"`y` must have two classes or more, got {names.tolist()}.")
    member = _draw_halves(len(labels), models, to_generator(generator), units)
    named = {"labels": labels, "groups": groups, "units": units, "features": numeric_features(X)}
    notes = _rehearse(member, named, options, X)
    probabilities, correct = np.zeros(member.shape), np.zeros(member.shape, dtype=bool)
    for model, half in enumerate(tqdm(member.numpy(), desc="Models", unit="model", disable=None)):
        with _name_half("`estimator`", model, labels[half]):
            fitted: Any = clone(estimator)
            fitted.fit(_safe_indexing(X, np.flatnonzero(half)), labels[half])
        columns = _find_columns(fitted, names)[codes]
        with _name_half("`predict_proba` of `estimator`", model, labels[half]):
            posteriors = fitted.predict_proba(X)
        probabilities[model], correct[model] = _read_posteriors(posteriors, columns, len(fitted.classes_))
    with np.errstate(divide="ignore"):  # an infinite loss is what `validate_inputs` knows to be a probability of 0
        losses = -np.log(probabilities)
    return validate_inputs(losses, member, correct=correct, sure_of_axes=True, **named), notes


def _rehearse(member: Bool[Tensor, "models rows"], named: dict[str, Any], options: AuditOptions, X: Any) -> list[str]:
    """Check all that an audit of these halves needs, on drawn losses, before anything is trained; notes on the rows."""
    drawn = uniform(member.shape, generator=torch.Generator().manual_seed(0))
    inputs = validate_inputs(-(-drawn).log1p(), member, correct=drawn < 0.5, sure_of_axes=True, **named)
    try_attacks(inputs.models, options.attacks)
    return find_duplicate_rows(X, named["labels"].tolist(), member)


@contextmanager
def _name_half(what: str, model: int, labels: Any) -> Iterator[None]:
    """Say of an error in a user's code, or in a library it calls, on which half it was raised."""
    try:
        yield
    except Exception as error:
        names, counts = np.unique(np.asarray(labels), return_counts=True)
        classes = ", ".join(f"{count} of class {name}" for name, count in zip(names[:8], counts, strict=False))
        cure = " Merge rare classes, leave them out, or give more rows of them." * bool(counts.min() < _FEW_OF_A_CLASS)
        raise ValueError(
            f"{what} fails on half {model}, {len(labels)} rows: {classes}{', …' * (len(names) > 8)}. It says: "
            f"{type(error).__name__}: {arguments.shorten(str(error), 400)}{cure}"
        ) from error


def _check_estimator(estimator: Any) -> None:
    """Refuse what surely is no classifier with probabilities that scikit-learn can clone, with the way open to it.

    Methods that the class has under a condition, or that are delegated, may appear in `fit`.
    """
    kind, ours = type(estimator), isinstance(estimator, BaseEstimator)
    if isinstance(estimator, type):
        raise TypeError(f"`estimator` must be an instance, got the class {estimator.__name__}; call it.")
    known = hasattr(estimator, "predict_proba") or hasattr(kind, "predict_proba") or kind.__module__[:8] != "sklearn."
    if not hasattr(estimator, "fit") or not known or (ours and is_regressor(estimator)):
        cure = _CALIBRATE if ours and is_classifier(estimator) else _FOR_REGRESSION
        raise TypeError(f"`estimator` must have `fit` and `predict_proba`, got {kind.__name__}; {cure}.")
    try:
        clone(estimator)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"`estimator` must have `get_params`, so that it can be cloned, got {kind.__name__}: {error}; derive it "
            "from sklearn.base.BaseEstimator, or train copies and give their losses to `audit.of_losses`."
        ) from error


def _find_columns(fitted: Any, names: np.ndarray) -> np.ndarray:
    """The column of each label in what `predict_proba` gives; -1 for one that the clone does not know."""
    cure = "in `fit`, set `self.classes_ = numpy.unique(y)`, in the order of the columns of `predict_proba`"
    for name, way in (("predict_proba", _CALIBRATE), ("classes_", cure)):
        if not hasattr(fitted, name):
            kind = type(fitted).__name__
            raise TypeError(f"`estimator` must have `{name}` after `fit`, got none from {kind}; {way}.")
    known = {label: column for column, label in enumerate(np.asarray(fitted.classes_).ravel().tolist())}
    columns = np.array([known.get(name, -1) for name in names.tolist()])
    if (columns < 0).all():
        raise ValueError(f"`classes_` of `estimator` must be labels of `y`, got {arguments.shown([*known])}.")
    return columns


def _read_posteriors(posteriors: Any, columns: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each row's label, 0 for one that the clone does not know, and whether it is the largest."""
    table = to_floats("predict_proba", posteriors).double().numpy()
    if table.shape != (len(columns), classes) or not bool((abs(table - 0.5) <= 0.5 + 1e-6).all()):
        raise ValueError(
            f"`predict_proba` must give ({len(columns)}, {classes}) probabilities in [0, 1], one for each of "
            f"`classes_`, got shape {table.shape} or others: the fit may have diverged, or `X` may have missing values."
        )
    chance = np.where(columns < 0, 0.0, table[np.arange(len(columns)), columns])
    return chance.clip(0, 1), table.argmax(1) == columns


def train_modules(
    factory: Factory,
    train: Train | None,
    X: Any,
    y: Any,
    options: AuditOptions,
    *,
    models: int,
    generator: Any,
    groups: Any,
    units: Any,
    folder: Any,
    recipe: Any,
    device: Any,
) -> tuple[AuditInputs, list[str]]:
    """Inputs of an audit, and notes, from modules trained by `train` or all at once; see `audit.of_module`."""
    X, y = to_inputs(X), torch.from_numpy(to_classes("y", y, whole=True))
    if len(X) != len(y):
        raise ValueError(f"`X` and `y` must have equally many rows, got {len(X)} and {len(y)}.")
    if train is not None and not callable(train):
        raise TypeError(f"`train` must be a function `train(module, X, y)` or None, got {arguments.shown(train)}.")
    if recipe is not None and (train is not None or not isinstance(recipe, Recipe)):
        raise ValueError("`recipe` must be a trainers.ensembles.Recipe, and goes with `train=None`.")
    _check_folder(folder)
    draws = to_generator(generator)
    member = _draw_halves(len(X), models, draws, units, equal=train is None)
    if train is None and len(member.sum(-1).unique()) > 1:
        raise ValueError("`units` must have equally many rows where `train` is None; else give `train`.")
    named = {"labels": y, "groups": groups, "units": units, "features": X}
    notes = _rehearse(member, named, options, X)
    with _own_draws():
        first, other = _make_module(factory), _make_module(factory)
        if first is other and train is not None:  # the module would remember the rows of earlier halves
            raise ValueError("`factory` must make a new module at each call, got the same module twice.")
        here = next(first.parameters(), torch.empty(0)).device
        place = here if device is None else arguments.check_device("device", device)
        rows = X.to(place), y.to(place)
        on_outputs = _check_outputs(first.to(place), *rows)
    if train is None:
        losses, correct = _train_at_once(first, *rows, member.to(place), recipe or _RECIPE, draws, folder)
    else:
        seeds = integers(2**62, (models,), generator=draws).tolist()
        each = tqdm([*enumerate(zip(member.to(place), seeds, strict=True))], "Models", unit="model", disable=None)
        answers = [_train_one(factory, train, *rows, half, seed, folder, model) for model, (half, seed) in each]
        losses, correct = (torch.stack(part) for part in zip(*answers, strict=True))
    inputs = validate_inputs(losses, member, correct=correct, sure_of_axes=True, **named)
    return inputs._replace(notes=(*on_outputs, *inputs.notes)), notes


def _train_one(
    factory: Factory, train: Train, X: Tensor, y: Tensor, half: Tensor, number: int, folder: Any, model: int
) -> Answers:
    """`Answers` of a module that the user's function trains on one half, read from `folder` if they are saved there."""
    with _own_draws():
        torch.manual_seed(number)  # `factory` and `train` draw from the global stream
        module = _make_module(factory).to(X.device)
        X = _match_precision(X, module)
        _check_outputs(module, X, y)  # it also gives a lazy layer its weights
        weights = {name: part for name, part in module.state_dict().items() if isinstance(part, Tensor)}

        def compute() -> Answers:
            with _name_half("`train`", model, y[half].cpu()):
                result = train(module, X[half], y[half])
                losses, wrong = cross_entropies(ModuleClassifier(module, "factory")(X), y)
            if isinstance(result, nn.Module) and result is not module:
                raise ValueError("`train` must train the module that it receives, in place; it returned another one.")
            if not all(bool(part.isfinite().all()) for part in (losses, *module.parameters())):
                raise ValueError("`train` must leave finite parameters; one has diverged: lower its learning rate.")
            return losses.cpu(), ~wrong.cpu()

        return _load_or_compute(compute, folder, (X.device.type, X, y, half, number, repr(module), weights))


def _train_at_once(
    module: nn.Module, X: Tensor, y: Tensor, member: Tensor, recipe: Recipe, draws: torch.Generator, folder: Any
) -> Answers:
    """`Answers` of modules that `trainers.ensembles` trains together, read from `folder` if they are saved there."""
    X = _match_precision(X, module)
    if module.eval()(X[:2]).numel() == len(X[:2]):
        module = nn.Sequential(module, _TwoLogits())
    dtype = X.dtype if X.is_floating_point() else torch.float32
    rows = member.nonzero()[:, 1].view(len(member), -1)
    with _name_half("`recipe` or `factory`", 0, y[member[0]].cpu()):
        drawn = initial(module, len(member), generator=draws, dtype=dtype)
        parts = ({name: part.to(X.device) for name, part in own.items()} for own in (drawn.parameters, drawn.buffers))
        examples, networks = Examples((X,), y), ModuleEnsemble(module, Stack(*parts))

    def compute() -> Answers:
        with _name_half("`recipe` or `factory`", 0, y[member[0]].cpu()):
            shown = f"{len(member)} models"
            done = ensembles.train(networks, examples, rows, recipe, generator=draws, description=shown)
            score = done.compute_losses(examples)
        return score.losses.cpu(), (score.wrong == 0).cpu()

    weights = networks.stack.parameters | networks.stack.buffers
    key = (X.device.type, X, y, rows, recipe, draws.get_state(), repr(module), weights)
    return _load_or_compute(compute, folder, key)


def _load_or_compute(compute: Callable[[], Answers], folder: Any, content: Any) -> Answers:
    """The saved answers in the file named by the digest of `content`; if there are none, compute and save them."""
    if folder is None:
        return compute()
    path = Path(folder) / f"{store.digest(content)}.pt"
    try:
        return store.load(path)
    except (FileNotFoundError, store.DamagedFile):
        answers = compute()
        store.save(path, answers)
        return answers


def _make_module(factory: Factory) -> nn.Module:
    if isinstance(factory, nn.Module) or not callable(factory):
        raise TypeError(f"`factory` must be a function that makes a module, got {arguments.shown(factory)}.")
    try:
        module = factory()
    except Exception as error:
        raise ValueError(f"`factory` must make a module when called without arguments, got {error!r}.") from error
    if not isinstance(module, nn.Module):
        raise TypeError(f"`factory` must make an nn.Module when called, got {type(module).__name__}.")
    return module


def _own_draws() -> AbstractContextManager[Any]:
    """PyTorch's global streams, on all devices, are afterwards where they were."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def _check_outputs(module: nn.Module, X: Tensor, y: Tensor) -> list[str]:
    """Refuse probabilities, and labels that are not classes of the module; notes on its outputs."""
    X = _match_precision(X, module)
    odd = ~X.flatten(1).isfinite().all(1)
    asked = torch.cat([X[:ROWS_ASKED], X[odd][:ROWS_ASKED]])
    try:
        logits, notes = logits_of_network("factory", ModuleClassifier(module, "factory"), asked)
    except Exception as error:
        kind = f"{tuple(asked.shape)} of {asked.dtype}"
        whole = "; for a layer that takes no whole numbers give `X` as floats" * (not X.is_floating_point())
        raise ValueError(
            f"`factory` makes a module that fails on the first rows of `X`, {kind}{whole}: {error}"
        ) from error
    if bool(odd.any()) and not bool(logits.isfinite().all()):
        raise ValueError("`X` must be finite, got NaN or infinity, for which the module gives no finite logits.")
    arguments.check_whole("y", y, most=logits.shape[-1] - 1)
    return notes


def _check_folder(folder: Any) -> None:
    """Make the folder, before hours are spent on what it is to keep."""
    try:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError("it may not be written into")
    except (OSError, TypeError) as error:
        raise ValueError(f"`folder` must be a folder that can be written into, got {folder!r}: {error}.") from error


class _TwoLogits(nn.Module):
    """The last layer of a module with one output o of each row: the two logits 0 and o."""

    def forward(self, output: Tensor) -> Tensor:
        return two_logits(output, count=len(output))


def _match_precision(X: Tensor, module: nn.Module) -> Tensor:
    """The inputs in the floating-point precision of the module; integers stay as they are."""
    parameter = next(module.parameters(), None)
    return X if parameter is None or not X.is_floating_point() else X.to(parameter.dtype)


def _draw_halves(
    rows: int, models: int, draws: torch.Generator, units: Any = None, *, equal: bool = False
) -> Bool[Tensor, "models rows"]:
    """Random halves of the units and their complements; if `equal`, of an odd number, independent equal halves."""
    unit = torch.arange(rows) if units is None else number_units(units, rows)[1]
    count = int(unit.max()) + 1 if rows else 0
    if count < 4:
        what = "`X` must have four rows" if units is None else "`units` must name four units"
        raise ValueError(f"{what} or more, two for each half, got {count}.")
    if arguments.check_count("models", models, least=2) % 2:
        raise ValueError(f"`models` must be even, got {models}: each model has a partner, trained on the other half.")
    member, _ = complementary_masks(count, models, generator=draws)
    if equal and count % 2:
        order = uniform((models, count), generator=draws, dtype=torch.float32).argsort(-1)
        member = order < count // 2
    return member[:, unit]
