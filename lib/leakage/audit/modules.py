"""PyTorch modules on random halves, trained by the caller or all at once, and what they say of every row.

What finished models say (their losses and whether they are right, no weights) is kept if a folder is given: in one file
for each model, or one for all that are trained at once (see `leakage.store`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from leakage import arguments, store
from leakage.audit.given import Given, given
from leakage.audit.halves import drawn, of_duplicates, stream_of
from leakage.models.classifier import OfModule
from leakage.models.initialisation import initial
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples, classes
from leakage.trainers.ensembles import Recipe
from leakage.trainers.modules import Modules

_RECIPE = Recipe(epochs=30, batch=64)


def trained(
    factory: Callable[[], Any],
    train: Callable[[Any, Any, Any], Any] | None,
    X: Any,
    y: Any,
    *,
    models: int,
    generator: Any,
    groups: Any,
    folder: Path | str | None,
    recipe: Any,
) -> tuple[Given, list[str]]:
    """What an audit is given, and notes; see `audit.of_module`."""
    X, y = _inputs(X), _classes(y)
    if len(X) != len(y):
        raise ValueError(f"`X` and `y` must have equally many rows, got {len(X)} and {len(y)}.")
    if recipe is not None and (train is not None or not isinstance(recipe, Recipe)):
        raise ValueError("`recipe` must be a trainers.ensembles.Recipe, and goes with `train=None`.")
    draws = stream_of(generator)
    if train is None:
        member = _equal_halves(len(X), models, draws)
        losses, correct = _at_once(_made(factory), X, y, member, recipe or _RECIPE, draws, folder)
    else:
        member = drawn(len(X), models, draws)
        starts = torch.randint(2**62, (models,), generator=draws).tolist()
        _new(factory)
        places = tqdm(range(models), desc="Models", unit="model", disable=None)
        found = [_one(factory, train, X, y, member[place], starts[place], folder) for place in places]
        losses, correct = (torch.stack(part) for part in zip(*found, strict=True))
    known = given(losses, member, correct=correct, labels=y, groups=groups)
    return known, of_duplicates(X, y.tolist(), member)


def _one(
    factory: Callable[[], Any],
    train: Callable[[Any, Any, Any], Any],
    X: Tensor,
    y: Tensor,
    member: Tensor,
    start: int,
    folder: Path | str | None,
) -> tuple[Tensor, Tensor]:
    """The losses of one model, and whether it is right; from its file if there is a good one."""
    with torch.random.fork_rng():
        torch.manual_seed(start)  # the caller draws from the global stream
        module = _made(factory)
        X = _like(module, X)
        weights = {name: part for name, part in module.state_dict().items() if isinstance(part, Tensor)}

        def answers() -> tuple[Tensor, Tensor]:
            _check(module, X, y)
            result = train(module, X[member], y[member])
            if isinstance(result, nn.Module) and result is not module:
                raise ValueError("`train` must train the module that it is given, in place; it returned another one.")
            return _asked(module, X, y)

        return _load_or_compute(answers, folder, (X, y, member, start, repr(module), weights))


def _like(module: nn.Module, X: Tensor) -> Tensor:
    """Fractions in the precision of the module."""
    parameter = next(module.parameters(), None)
    return X if parameter is None or not X.is_floating_point() else X.to(parameter.dtype)


def _check(module: nn.Module, X: Tensor, y: Tensor) -> None:
    """Refuse labels that are no class of the module, before anything is trained."""
    arguments.whole("y", y, most=OfModule(module)(X[:2]).shape[-1] - 1)


def _asked(module: nn.Module, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if not all(bool(part.isfinite().all()) for part in module.parameters()):
        raise ValueError("`train` must leave finite parameters; a module has diverged: lower its learning rate.")
    score = classes(OfModule(module)(X), y)
    return score.losses, score.wrong == 0


def _at_once(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    member: Tensor,
    recipe: Recipe,
    draws: torch.Generator,
    folder: Path | str | None,
) -> tuple[Tensor, Tensor]:
    """All networks of one form, by the ensemble engine."""
    X = _like(module, X)
    examples = Examples((X,), y)
    _check(module, X, y)
    dtype = X.dtype if X.is_floating_point() else torch.float32
    stack = initial(module, len(member), generator=draws, dtype=dtype)
    rows = member.nonzero()[:, 1].view(len(member), -1)

    def answers() -> tuple[Tensor, Tensor]:
        networks = Modules(module, stack, criterion=classes)
        done = ensembles.train(networks, examples, rows, recipe, generator=draws, description=f"{len(member)} models")
        score = done.scores(examples)
        return score.losses, score.wrong == 0

    weights = stack.parameters | stack.buffers
    return _load_or_compute(answers, folder, (X, y, rows, recipe, draws.get_state(), repr(module), weights))


def _equal_halves(rows: int, models: int, draws: torch.Generator) -> Tensor:
    """Complementary halves, or of an odd number of rows independent subsets that leave the middle out."""
    member = drawn(rows, models, draws)
    if rows % 2:
        order = torch.rand(models, rows, dtype=torch.float32, generator=draws).argsort(-1)
        member = order < rows // 2
    return member


def _made(factory: Callable[[], Any]) -> nn.Module:
    if isinstance(factory, nn.Module):
        raise TypeError("`factory` must be a function that makes a module, got a module; its class may do.")
    module = factory()
    if not isinstance(module, nn.Module):
        raise TypeError(f"`factory` must make an nn.Module when called, got {type(module).__name__}.")
    return module


def _new(factory: Callable[[], Any]) -> None:
    """Refuse a factory that gives one module again and again, which would go on from what it has seen."""
    with torch.random.fork_rng():
        if _made(factory) is _made(factory):
            raise ValueError("`factory` must make a new module each time, got one twice.")


def _inputs(X: Any) -> Tensor:
    found = X.detach().cpu() if isinstance(X, Tensor) else _numbers("X", X)
    if found.ndim < 2:
        raise ValueError(f"`X` must have rows of features, (rows, …), got shape {tuple(found.shape)}.")
    if found.is_floating_point():
        arguments.real("X", found)
    return found


def _classes(y: Any) -> Tensor:
    found = y.detach().cpu() if isinstance(y, Tensor) else _numbers("y", y)
    if found.is_floating_point() and bool((found == found.round()).all()):
        found = found.long()
    return arguments.whole("y", found, "rows").long()


def _numbers(name: str, values: Any) -> Tensor:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold numbers, got {array.dtype}; encode it first.")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


def _load_or_compute(
    compute: Callable[[], tuple[Tensor, Tensor]], folder: Path | str | None, content: Any
) -> tuple[Tensor, Tensor]:
    """The losses of trained models and whether they are right, from the file named after `content` if it is there."""
    if folder is None:
        return compute()
    path = Path(folder) / f"{store.digest(content)}.pt"
    try:
        return store.load(path)
    except (FileNotFoundError, store.DamagedFile):  # the models of a damaged file are trained again
        found = compute()
        store.save(path, found)
        return found
