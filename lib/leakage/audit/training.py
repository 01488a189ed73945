"""Train copies of a user's model, each on a random half of the rows, and evaluate them on every row.

Models come in pairs: the second model is trained on the rows that the first leaves out. Each model gives, for each row,
the loss of its label and whether the prediction is right.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from leakage import arguments, store
from leakage.audit.inputs import AuditInputs, logits_of_network, number_units, to_tensor, validate_inputs
from leakage.audit.notes import find_duplicate_rows
from leakage.data.membership_splits import complementary_masks
from leakage.models.classifier import ModuleClassifier, two_logits
from leakage.models.initialisation import Stack, initial
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, ModuleEnsemble, Recipe, cross_entropies

_RECIPE = Recipe(epochs=30, batch=64)
Answers = tuple[Float[Tensor, "... points"], Bool[Tensor, "... points"]]
"""Losses, and whether predictions are right: only these are kept of a trained model, not its weights."""


def train_clones(
    estimator: Any, X: Any, y: Any, *, models: int, generator: Any, groups: Any, units: Any
) -> tuple[AuditInputs, list[str]]:
    """Inputs of an audit, and notes, from trained clones of a classifier; see `audit.of_sklearn`."""
    _check_estimator(estimator)
    X, y = (values.detach().cpu().numpy() if isinstance(values, Tensor) else values for values in (X, y))
    labels = column_or_1d(y)
    check_classification_targets(labels)
    if _num_samples(X) != len(labels):
        raise ValueError(f"`X` and `y` must have equally many rows, got {_num_samples(X)} and {len(labels)}.")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"`y` must have two classes or more, got {names.tolist()}.")
    member = _draw_halves(len(labels), models, _to_generator(generator), units)
    probabilities, correct = np.zeros(member.shape), np.zeros(member.shape, dtype=bool)
    for model, half in enumerate(tqdm(member.numpy(), desc="Models", unit="model", disable=None)):
        fitted: Any = clone(estimator)
        fitted.fit(_safe_indexing(X, np.flatnonzero(half)), labels[half])
        probabilities[model], correct[model] = _evaluate_clone(fitted, X, names, codes)
    with np.errstate(divide="ignore"):  # an infinite loss is what `validate_inputs` knows to be a probability of 0
        losses = -np.log(probabilities)
    named = {"labels": labels, "groups": groups, "units": units, "features": _numeric_features(X)}
    inputs = validate_inputs(losses, member, correct=correct, **named)
    return inputs, find_duplicate_rows(X, labels.tolist(), member)


def _numeric_features(X: Any) -> Any:
    """X if it is an array of numbers, or the columns of numbers of a data frame; else None."""
    if hasattr(X, "select_dtypes"):
        X = X.select_dtypes(["number", "bool"]).to_numpy(dtype=float, na_value=np.nan)
    return X if isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim > 1 and X.shape[1] else None


def _check_estimator(estimator: Any) -> None:
    """Refuse what is no classifier with probabilities that scikit-learn can clone, with the way that is open to it."""
    kind = type(estimator).__name__
    if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
        cure = (
            "for a regressor, train copies and give their squared errors to `audit.of_losses(…, probabilities=False)`"
        )
        if isinstance(estimator, BaseEstimator) and is_classifier(estimator):
            cure = "wrap it in scikit-learn's CalibratedClassifierCV, which adds probabilities"
        raise TypeError(f"`estimator` must have `fit` and `predict_proba`, got {kind}; {cure}.")
    if not hasattr(estimator, "get_params"):
        raise TypeError(
            f"`estimator` must have `get_params`, so that it can be cloned, got {kind}; derive it from "
            "sklearn.base.BaseEstimator, or train copies and give their losses to `audit.of_losses`."
        )


def _evaluate_clone(fitted: Any, X: Any, names: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each row's label, 0 for a label outside the clone's half, and whether it is the largest."""
    if not hasattr(fitted, "classes_"):
        raise TypeError(
            f"`estimator` must have `classes_` after `fit`, got none from {type(fitted).__name__}; in `fit`, set "
            "`self.classes_ = numpy.unique(y)`, in the order of the columns of `predict_proba`."
        )
    known = np.searchsorted(names, fitted.classes_)
    posteriors = np.asarray(fitted.predict_proba(X), dtype=float)
    if posteriors.shape != (len(codes), len(known)) or not bool(((posteriors >= 0) & (posteriors <= 1 + 1e-6)).all()):
        raise ValueError(
            f"`predict_proba` must give ({len(codes)}, {len(known)}) probabilities in [0, 1], one for each of "
            f"`classes_`, got shape {posteriors.shape} or other values: the fit may have diverged, or `X` "
            "may have missing values."
        )
    all_classes = np.zeros((len(codes), len(names)))
    all_classes[:, known] = posteriors
    return all_classes[np.arange(len(codes)), codes].clip(0, 1), known[posteriors.argmax(1)] == codes


def train_modules(
    factory: Callable[[], Any],
    train: Callable[[Any, Any, Any], Any] | None,
    X: Any,
    y: Any,
    *,
    models: int,
    generator: Any,
    groups: Any,
    units: Any,
    folder: Path | str | None,
    recipe: Any,
    device: Any,
) -> tuple[AuditInputs, list[str]]:
    """Inputs of an audit, and notes, from modules trained by `train` or all at once; see `audit.of_module`."""
    X, y = _to_inputs(X), _to_classes(y)
    if len(X) != len(y):
        raise ValueError(f"`X` and `y` must have equally many rows, got {len(X)} and {len(y)}.")
    if recipe is not None and (train is not None or not isinstance(recipe, Recipe)):
        raise ValueError("`recipe` must be a trainers.ensembles.Recipe, and goes with `train=None`.")
    draws = _to_generator(generator)
    place = _find_device(device, factory)
    member = _draw_halves(len(X), models, draws, units, equal=train is None)
    if train is None:
        if len(member.sum(-1).unique()) > 1:
            raise ValueError(
                "`units` must have equally many rows where all modules are trained at once; give `train`, which trains "
                "one after the other."
            )
        module = _make_module(factory).to(place)
        losses, correct = _train_at_once(module, X.to(place), y.to(place), member, recipe or _RECIPE, draws, folder)
    else:
        seeds = torch.randint(2**62, (models,), generator=draws).tolist()
        _check_factory(factory)
        rows = X.to(place), y.to(place)
        each = tqdm(zip(member, seeds, strict=True), total=models, desc="Models", unit="model", disable=None)
        answers = [_train_one(factory, train, *rows, half.to(place), seed, folder) for half, seed in each]
        losses, correct = (torch.stack(part) for part in zip(*answers, strict=True))
    named = {"labels": y, "groups": groups, "units": units, "features": X}
    inputs = validate_inputs(losses, member, correct=correct, **named)
    return inputs, find_duplicate_rows(X, y.tolist(), member)


def _train_one(
    factory: Callable[[], Any],
    train: Callable[[Any, Any, Any], Any],
    X: Shaped[Tensor, "points ..."],
    y: Tensor,
    half: Bool[Tensor, " points"],
    number: int,
    folder: Path | str | None,
) -> Answers:
    """`Answers` of a module that the user's function trains on one half, read from `folder` if they are saved there."""
    with _own_draws():
        torch.manual_seed(number)  # `factory` and `train` draw from the global stream
        module = _make_module(factory).to(X.device)
        X = _match_precision(X, module)
        weights = {name: part for name, part in module.state_dict().items() if isinstance(part, Tensor)}

        def compute() -> Answers:
            _check_outputs(module, X, y)
            result = train(module, X[half], y[half])
            if isinstance(result, nn.Module) and result is not module:
                raise ValueError(
                    "`train` must train the module that it receives, in place; it returned another module."
                )
            if not all(bool(part.isfinite().all()) for part in module.parameters()):
                raise ValueError(
                    "`train` must leave finite parameters; a module has diverged: lower its learning rate."
                )
            losses, wrong = cross_entropies(ModuleClassifier(module)(X), y)
            return losses.cpu(), ~wrong.cpu()

        return _load_or_compute(compute, folder, (X.device.type, X, y, half, number, repr(module), weights))


def _train_at_once(
    module: nn.Module,
    X: Shaped[Tensor, "points ..."],
    y: Tensor,
    member: Bool[Tensor, "models points"],
    recipe: Recipe,
    draws: torch.Generator,
    folder: Path | str | None,
) -> Answers:
    """`Answers` of modules that `trainers.ensembles` trains together, read from `folder` if they are saved there."""
    X = _match_precision(X, module)
    _check_outputs(module, X, y)
    if module.eval()(X[:2]).numel() == len(X[:2]):
        module = nn.Sequential(module, _TwoLogits())
    dtype = X.dtype if X.is_floating_point() else torch.float32
    drawn = initial(module, len(member), generator=draws, dtype=dtype)
    stack = Stack(*({name: part.to(X.device) for name, part in parts.items()} for parts in vars(drawn).values()))
    rows = member.nonzero()[:, 1].view(len(member), -1).to(X.device)

    def compute() -> Answers:
        examples, networks = Examples((X,), y), ModuleEnsemble(module, stack)
        done = ensembles.train(networks, examples, rows, recipe, generator=draws, description=f"{len(member)} models")
        score = done.compute_losses(examples)
        return score.losses.cpu(), (score.wrong == 0).cpu()

    weights = stack.parameters | stack.buffers
    key = (X.device.type, X, y, rows, recipe, draws.get_state(), repr(module), weights)
    return _load_or_compute(compute, folder, key)


def _load_or_compute(compute: Callable[[], Answers], folder: Path | str | None, content: Any) -> Answers:
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


def _make_module(factory: Callable[[], Any]) -> nn.Module:
    if isinstance(factory, nn.Module):
        raise TypeError("`factory` must be a function that makes a module, got a module; give its class or a lambda.")
    module = factory()
    if not isinstance(module, nn.Module):
        raise TypeError(f"`factory` must make an nn.Module when called, got {type(module).__name__}.")
    return module


def _find_device(device: Any, factory: Callable[[], Any]) -> torch.device:
    """Where modules are trained: the device asked for, if this machine has it, or that of a new module's parameters."""
    if device is None:
        with _own_draws():
            return next(_make_module(factory).parameters(), torch.empty(0)).device
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        found = str(error).partition("\n")[0].rstrip(".")
    if isinstance(found, str) or found.type == "meta":
        reason = f": {found}" * isinstance(found, str)
        raise ValueError(
            f"`device` must be one that this machine can compute on, got {arguments.shown(device)}{reason}; "
            "'cpu' always is."
        )
    return found


def _own_draws() -> AbstractContextManager[Any]:
    """PyTorch's global streams, on all devices, are afterwards where they were."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def _check_factory(factory: Callable[[], Any]) -> None:
    """Refuse a factory that returns the same module twice: the module would remember the rows of earlier halves."""
    with _own_draws():
        if _make_module(factory) is _make_module(factory):
            raise ValueError("`factory` must make a new module at each call, got the same module twice.")


def _check_outputs(module: nn.Module, X: Tensor, y: Tensor) -> None:
    """Refuse probabilities, and labels that are not classes of the module, before training starts."""
    logits = logits_of_network("factory", ModuleClassifier(module), X)
    arguments.check_whole("y", y, most=logits.shape[-1] - 1)


class _TwoLogits(nn.Module):
    """The last layer of a module with one output o of each row: the two logits 0 and o."""

    def forward(self, output: Tensor) -> Tensor:
        return two_logits(output, count=len(output))


def _match_precision(X: Tensor, module: nn.Module) -> Tensor:
    """The inputs in the floating-point precision of the module; integers stay as they are."""
    parameter = next(module.parameters(), None)
    return X if parameter is None or not X.is_floating_point() else X.to(parameter.dtype)


def _to_inputs(X: Any) -> Shaped[Tensor, "points ..."]:
    if isinstance(X, Dataset | DataLoader):
        raise TypeError(
            f"`X` must be a tensor or an array, got {type(X).__name__}; of a data set `data` give "
            "`torch.stack([row for row, _ in data])`, and `[label for _, label in data]` as `y`."
        )
    inputs = to_tensor("X", X)
    if inputs.ndim < 2:
        raise ValueError(f"`X` must have rows of features, (rows, …), got shape {tuple(inputs.shape)}.")
    if not bool(inputs.isfinite().all()):
        raise ValueError("`X` must be finite, got NaN or infinity among its numbers.")
    return inputs


def _to_classes(y: Any) -> Tensor:
    labels = to_tensor("y", y)
    if labels.is_floating_point() and bool((labels == labels.round()).all()):
        labels = labels.long()
    return arguments.check_whole("y", labels, "rows").long()


def _draw_halves(
    rows: int, models: int, draws: torch.Generator, units: Any = None, *, equal: bool = False
) -> Bool[Tensor, "models points"]:
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
        order = torch.rand(models, count, dtype=torch.float32, generator=draws).argsort(-1)
        member = order < count // 2
    return member[:, unit]


def _to_generator(generator: Any) -> torch.Generator:
    """The given PyTorch generator, one seeded by the given NumPy generator, or, for None, one with seed 0."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if isinstance(generator, np.random.Generator):
        return torch.Generator().manual_seed(int(generator.integers(2**63)))
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise TypeError(
            "`generator` must be a torch.Generator on the CPU or a numpy.random.Generator, got "
            f"{type(generator).__name__}; try numpy.random.default_rng(0)."
        )
    return generator
