"""Check and convert the inputs of an audit.

`leakage.arrays` converts. float32 stays float32, since a loss below its rounding is not 0 but unknown; other losses
become float64. Unusable input raises an error that says how to fix it; input that is usable with a reservation adds a
note.

**Coarse probabilities.** A forest of twenty trees says 0, 1/20, … 1, and by 0 it means less than 1/20. But the loss of
0 is infinite, and after any rounding the logits of 0 and 1 are far from all others. A Gaussian of LiRA then fits how
often a model says 0 or 1, and nothing else. So p and 1 - p are clipped to half of the least step that these models
show: here 1/40, the middle of what 0 may mean. Of sixteen such forests on the digits LiRA finds 24 % of the members at
1 % FPR; clipped to 0.001 it finds 9 %, to 2⁻⁵² 6 %. All inputs pass here, so that the same models have the same numbers
however they are given.
"""

import dataclasses
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.arrays import number_units, to_floats, to_matrix, to_names
from leakage.audit.notes import find_single_labels
from leakage.membership.trained_models import TrainedModels
from leakage.models.classifier import Classifier, EstimatorClassifier
from leakage.models.mlp import Mlp

LEAST_OF_A_KIND = 2
"""Members, and outsiders, without which nobody is told apart."""
ROWS_ASKED = 64
"""Rows that show what a model gives: logits, or probabilities in their place."""
_LEAST_PROBABILITY = torch.finfo(torch.float64).eps  # a smaller one is lost beside 1
_INFINITE = -math.log(_LEAST_PROBABILITY)  # nats
_COARSE = 1e-6  # p and 1 - p of coarse models are 0 or above this; those of other models have all sizes
_CERTAIN = 1e-3  # the chance that tables which are not transposed look so
_NO_STEP = 1e-3  # the least p and 1 - p of models that say 0 and 1 only, as a single tree does
_LARGEST_FEATURE = 1e300  # a feature; a larger one would have no mean with another
_NEEDED = ("losses", "member")  # in a file
_ALLOWED = (
    *(*_NEEDED, "member_losses", "outsider_losses", "target", "population", "correct", "labels", "groups", "units"),
    *("features", "probabilities"),
)
_SINGLE = {"target": ("iu", "whole number, the place of a model"), "probabilities": ("b", "truth value")}
_MOST_BYTES = 2**32  # of one array: a small damaged or hostile archive may promise any size


class AuditInputs(NamedTuple):
    """What an audit attacks; `labels` and `groups` name each unit, and `units` is None where each row is one."""

    models: TrainedModels
    labels: np.ndarray | None
    groups: np.ndarray | None
    units: np.ndarray | None
    notes: tuple[str, ...]


def validate_inputs(
    losses: Any = None,
    member: Any = None,
    *,
    member_losses: Any = None,
    outsider_losses: Any = None,
    target: Any = None,
    population: Any = None,
    correct: Any = None,
    labels: Any = None,
    groups: Any = None,
    units: Any = None,
    features: Any = None,
    probabilities: Any = True,
    sure_of_axes: bool = False,
) -> AuditInputs:
    """Everything checked and converted; see `audit.of_losses` for the arguments.

    `sure_of_axes` says that tables cannot be transposed, since they are no user's.
    """
    if not isinstance(probabilities, bool | np.bool_):
        raise TypeError(f"`probabilities` must be True or False, got {arguments.shown(probabilities)}.")
    values, truths = _to_tables(losses, member, member_losses, outsider_losses, target)
    count, rows = values.shape
    on_shape = [] if sure_of_axes or count <= rows else _check_axes(values, truths)
    outside = None if population is None else to_matrix("population", population).to(values.dtype)
    if outside is not None and len(outside) != count:
        raise ValueError(f"`population` must have losses of all {count} models, got {len(outside)} rows.")
    right = None if correct is None else to_matrix("correct", correct, boolean=True)
    if right is not None and right.shape != values.shape:
        raise ValueError(f"`correct` must be of the shape of `losses`, got {tuple(right.shape)}.")
    given = {"labels": labels, "groups": groups}
    names = {key: None if each is None else to_names(key, each, rows) for key, each in given.items()}
    table = _to_features(features, rows, names["labels"])
    values, outside, notes = (_clip_losses if probabilities else _scale_losses)(values, outside, truths)
    notes = [*on_shape, *notes]
    inside, unit, unit_names = truths, None, None
    if units is not None:
        unit_names, unit = number_units(units, rows)
        inside = _check_units(truths, unit, unit_names)
        names = {key: None if each is None else _names_of_units(each, unit.numpy()) for key, each in names.items()}
        notes = [*notes, f"Scores are means over the rows of each unit; all numbers are of {len(unit_names):,} units."]
    targets = find_targets(inside, target)
    models = TrainedModels.from_losses(
        values,
        truths,
        find_partners(truths),
        saved_correct=right,
        population=outside,
        targets=None if len(targets) == count else targets,
        units=unit,
        probabilities=bool(probabilities),
        features=table,
    )
    notes = [*notes, *find_single_labels(names["labels"], "rows" if units is None else "units")]
    return AuditInputs(models, **names, units=unit_names, notes=tuple(notes))


def inputs_from_models(models: Any, *, target: int | None, groups: Any, units: Any) -> AuditInputs:
    """The inputs of an audit of trained models; see `audit.of_models`."""
    if not isinstance(models, TrainedModels):
        raise TypeError(
            f"`models` must be leakage.TrainedModels, got {type(models).__name__}; `TrainedModels.from_modules` and "
            "`TrainedModels.from_estimators` make them."
        )
    # Saved losses are passed on in their own precision: float32 has lost the small ones.
    saved = models.saved_losses is not None
    losses, notes = models.losses, {}
    for own, network in zip(losses, models.networks, strict=False):
        if isinstance(network, EstimatorClassifier):  # it gives logits of probabilities 0 as of `_LEAST_PROBABILITY`
            own[own <= _LEAST_PROBABILITY * (2 if network.classes is None else len(network.classes))] = 0.0
            own[own >= _INFINITE * (1 - 1e-9)] = math.inf
        elif models.points is not None and not isinstance(network, Mlp):
            notes |= dict.fromkeys(logits_of_network("models", network, models.points[:ROWS_ASKED].double())[1])
    correct = models.saved_correct if saved else models.correct
    more = {"population": models.population, "correct": correct, "labels": models.labels, "groups": groups}
    more |= {"units": models.units if units is None else units, "probabilities": models.probabilities}
    more |= {"features": models.features}
    inputs = validate_inputs(losses, models.member, target=target, sure_of_axes=True, **more)
    inputs = inputs._replace(notes=(*notes, *inputs.notes))
    if target is None and models.targets is not None:
        inputs = inputs._replace(models=dataclasses.replace(inputs.models, targets=models.targets))
    return inputs


def inputs_from_file(path: Path) -> AuditInputs:
    """The inputs of an audit: the arguments of `audit.of_losses` in an `.npz` file or a folder of `.npy` files.

    Nothing is unpickled. The files of a folder are mapped.
    """
    return validate_inputs(**_read_arrays(path))


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        if path.is_dir():  # mapped copy-on-write: read where they are used, and never written to
            arrays = {file.stem: np.lib.format.open_memmap(file, mode="c") for file in sorted(path.glob("*.npy"))}
        elif path.is_file():
            arrays = _read_archive(path)
        else:
            raise ValueError("it is no file and no folder")
    except Exception as error:  # damaged bytes make `zipfile` and NumPy raise almost anything
        raise ValueError(
            f"{path} must be an .npz file, or a folder of .npy files, of numbers and texts without Python objects: "
            f"{error}."
        ) from error
    if unknown := [name for name in arrays if name not in _ALLOWED]:
        raise ValueError(f"{path} may hold {', '.join(_ALLOWED)}; got {', '.join(map(repr, unknown))} besides.")
    one_model = "member_losses" in arrays or "outsider_losses" in arrays
    if not one_model and (missing := [name for name in _NEEDED if name not in arrays]):
        raise ValueError(f"{path} must hold {' and '.join(_NEEDED)}, but lacks {' and '.join(missing)}.")
    for name, (kinds, what) in _SINGLE.items():
        if name in arrays:
            if arrays[name].size != 1 or arrays[name].dtype.kind not in kinds:
                raise ValueError(f"{path}: `{name}` must be one {what}.")
            arrays[name] = arrays[name].item()
    return arrays


def _read_archive(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        for entry in entries:
            if entry.file_size > _MOST_BYTES:
                raise ValueError(f"{entry.filename} holds more than {_MOST_BYTES // 2**30} GiB; give a folder")
        return {
            entry.filename.removesuffix(".npy"): np.lib.format.read_array(archive.open(entry), allow_pickle=False)
            for entry in entries
        }


def logits_of_network(name: str, network: Classifier, inputs: Tensor) -> tuple[Tensor, list[str]]:
    """The logits of some rows, and a note if they may be probabilities; what a softmax gives is refused."""
    logits = network(inputs)
    inside = bool(((logits >= 0) & (logits <= 1)).all())
    if inside and bool(((logits.sum(-1) - 1).abs() < 1e-3).all()):
        raise ValueError(
            f"`{name}` must give logits, got probabilities, in [0, 1] with the sum 1: leave out the final softmax, or "
            "return the logarithms of the probabilities of all classes."
        )
    return logits, [
        f"All outputs of `{name}` are in [0, 1], as probabilities are: if its last layer is a sigmoid, leave it out, "
        "since outputs are taken as logits."
    ] * inside


def _to_tables(
    losses: Any, member: Any, member_losses: Any, outsider_losses: Any, target: Any
) -> tuple[Float[Tensor, "models rows"], Bool[Tensor, "models rows"]]:
    """Losses and who was trained on what, (models, rows), from two tables or from two vectors of one model."""
    given = [one is not None for one in (losses, member, member_losses, outsider_losses)]
    if given == [False, False, True, True]:
        each = {"member_losses": member_losses, "outsider_losses": outsider_losses}
        inside, outside = sides = [to_matrix(name, side) for name, side in each.items()]
        if max(map(len, sides)) > 1:
            raise ValueError("`member_losses` and `outsider_losses` must be those of one model; or give `losses`.")
        return torch.cat(sides, -1), torch.arange(inside.numel() + outside.numel())[None] < inside.numel()
    if given != [True, True, False, False]:
        raise ValueError("`losses` and `member` must be given, or else `member_losses` and `outsider_losses`.")
    values = to_matrix("losses", losses)
    models, rows = values.shape
    truths = _spread_target_row(to_matrix("member", member, boolean=True), target, models=models, rows=rows)
    if truths.shape != values.shape:
        raise ValueError(
            f"`member` must be of the shape of `losses`, (models, rows), got {tuple(truths.shape)} for "
            f"{tuple(values.shape)}; is one of them transposed?"
        )
    return values, truths


def _check_axes(losses: Float[Tensor, "models rows"], member: Bool[Tensor, "models rows"]) -> list[str]:
    """A note that models are more than rows; tables that their transposed form explains better are refused."""
    found = f"{len(losses):,} models and {losses.shape[1]:,} rows"
    cure = "if both arrays are transposed, give `losses.T` and `member.T`"
    if _is_transposed(losses, member):
        raise ValueError(f"`losses` must be (models, rows), got {found}; {cure}: rows differ for all models alike.")
    return [f"There are {found}; {cure}."]


def _is_transposed(losses: Float[Tensor, "models rows"], member: Bool[Tensor, "models rows"]) -> bool:
    """Whether only the transposed table of members has pairs, or models differ far more from each other than rows do.

    Rows are easy or hard for all models alike. It is an F test of the ranks of losses.
    """
    if find_partners(member) is not None:
        return False
    ranks = losses.unique(return_inverse=True)[1].double()
    models, rows = losses.shape
    of_models, of_rows = rows * float(ranks.mean(1).var()), models * float(ranks.mean(0).var())
    chance = float(special.fdtrc(models - 1, rows - 1, of_models / max(of_rows, 1e-300))) if rows > 1 else 1.0
    return chance < _CERTAIN or find_partners(member.mT.contiguous()) is not None


def _spread_target_row(
    member: Bool[Tensor, "m rows"], target: Any, *, models: int, rows: int
) -> Bool[Tensor, "n rows"]:
    """The members of all models, where one row may be given: that of the target, whose shadow models saw none."""
    if not len(member) == 1 < models or member.shape[1] != rows:
        return member
    if target is None:
        raise ValueError(
            f"`member` must have a row for each of the {models} models, got one row; where it is that of one "
            "target and the others never saw the rows, say which with `target`."
        )
    spread = torch.zeros(models, rows, dtype=torch.bool)
    spread[arguments.check_count("target", target, most=models - 1)] = member[0]
    return spread


def _clip_losses(
    losses: Float[Tensor, "models rows"], population: Tensor | None, member: Bool[Tensor, "models rows"]
) -> tuple[Tensor, Tensor | None, list[str]]:
    """Losses -log p with p and 1 - p clipped where they are coarse (see the top of this module), and notes."""
    notes = _check_losses("losses", losses, member)
    if population is not None:
        notes += _check_losses("population", population, torch.ones_like(population, dtype=torch.bool))
    floor, more = _probability_floor(losses if population is None else torch.cat([losses, population], 1))
    if floor:
        ends = -math.log1p(-floor), -math.log(floor)
        losses = losses.clamp(*ends)
        population = None if population is None else population.clamp(*ends)
    return losses, population, [*notes, *more]


def _check_losses(name: str, losses: Float[Tensor, "models rows"], member: Bool[Tensor, "models rows"]) -> list[str]:
    """Notes on losses that are no -log p of a useful model; those that cannot be attacked are refused."""
    own = member | ~member.any(-1, keepdim=True)  # what a model was trained on, or all if that is none of the rows
    broken = losses.isnan().any(-1)
    if bool(broken.any()):
        which = ", ".join(map(str, broken.nonzero().flatten().tolist()[:8]))
        raise ValueError(
            f"`{name}` must be finite, got NaN of model {which}. Where training diverged leave the "
            "model out of `losses` and `member`, or train it again with a lower learning rate; where it is the same "
            "rows of every model, leave those out."
        )
    if float(losses.min()) < 0:
        raise ValueError(
            f"`{name}` must be at least 0, got {float(losses.min()):g} among them; of logarithms of probabilities, "
            "turn the sign; of losses that are no -log p, give `probabilities=False`."
        )
    diverged = (((losses > _INFINITE) & own).sum(-1) > own.sum(-1) // 2).nonzero().flatten().tolist()
    return [
        f"Model {', '.join(map(str, diverged[:8]))} gives most rows of `{name}` a probability below 1e-15, as one that "
        "has diverged: what its losses tell is no leak; leave it out or train it again."
    ] * bool(diverged)


def _probability_floor(losses: Float[Tensor, "models rows"]) -> tuple[float, list[str]]:
    """The least value that p and 1 - p are clipped to, and a note on the clipping; 0 where nothing is clipped.

    Probabilities are coarse if some are 0 or 1 and no others are as near to 0 or 1 as `_COARSE`. Where p was 0 or 1
    after rounding only, the floor is what rounding leaves; of float32 losses that is known to the attacks.
    """
    sure, hopeless = losses[losses < _COARSE], losses[losses > -math.log(_COARSE)]
    zeros = int((hopeless == math.inf).sum())
    if len(sure) + len(hopeless) and _is_one_value(sure) and _is_one_value(hopeless):
        others = losses[(losses >= _COARSE) & (losses <= -math.log(_COARSE))]
        floor, affected = _NO_STEP, len(sure) + len(hopeless)
        if len(others):
            low, high = (float(end) for end in others.aminmax())
            floor = min(-math.expm1(-low), math.exp(-high)) / 2
    elif zeros or (losses.dtype == torch.float64 and bool((sure == 0).any())):
        floor, affected = _LEAST_PROBABILITY, zeros
    else:
        return 0.0, []
    return floor, [
        f"{affected:,} of {losses.numel():,} probabilities of the true label are 0 or 1, as trees give them, and any "
        f"model for a label it never saw; they are clipped to [{floor:.2g}, 1 - {floor:.2g}]."
    ] * bool(affected)


def _is_one_value(losses: Float[Tensor, " some"]) -> bool:
    """Whether there are no losses, or all have one value but for rounding: 0, infinity, or one that several have."""
    if not len(losses):
        return True
    low, high = (float(end) for end in losses.clamp_max(1e9).aminmax())
    return high - low <= 1e-15 + 1e-9 * low and (len(losses) > 1 or low in (0.0, 1e9))


def _scale_losses(
    losses: Float[Tensor, "models rows"], population: Tensor | None, member: Bool[Tensor, "models rows"]
) -> tuple[Tensor, Tensor | None, list[str]]:
    r"""Losses that are no -log p, from 0 upwards, in a unit of $\sqrt 2$ of their standard deviations.

    Squared errors with Gaussian residuals become minus the logarithm of the density, up to a constant, as RMIA needs
    it. The other attacks give the same in any unit.
    """
    least = float(arguments.check_real("losses", losses).min())
    if population is not None:
        least = min(least, float(arguments.check_real("population", population).min()))
    unit = max(math.sqrt(2) * float(losses.double().std()), torch.finfo(torch.float32).tiny)
    return (losses - least) / unit, None if population is None else (population - least) / unit, []


def _check_units(
    member: Bool[Tensor, "models rows"], unit: Int[Tensor, " rows"], names: np.ndarray
) -> Bool[Tensor, "models units"]:
    """Whether each model was trained on each unit."""
    inside = member[:, _first_rows(unit.numpy())]
    torn = (member != inside[:, unit]).nonzero()
    if len(torn):
        model, row = torn[0].tolist()
        raise ValueError(
            f"`units` must be trained on as a whole or not at all, but model {model} was trained on some rows of "
            f"{str(names[unit[row]])!r} only; train on whole units, or leave out the rows of such units that some "
            "model was not trained on."
        )
    return inside


def _names_of_units(names: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The name that all rows of a unit have, or "several"."""
    first = names[_first_rows(unit)]
    alike = np.bincount(unit, names == first[unit]) == np.bincount(unit)
    return np.where(alike, first, "several")


def _first_rows(unit: np.ndarray) -> np.ndarray:
    """The first row of each unit."""
    return np.unique(unit, return_index=True)[1]


def find_targets(member: Bool[Tensor, "models rows"], target: Any) -> tuple[int, ...]:
    """The models that are attacked: the one asked for, or all that have enough members and outsiders."""
    inside = member.sum(-1)
    fewest = torch.minimum(inside, member.shape[1] - inside)
    if target is not None:
        target = arguments.check_count("target", target, most=len(member) - 1)
        if int(fewest[target]) < LEAST_OF_A_KIND:
            raise ValueError(
                f"`member` must have {LEAST_OF_A_KIND} members and {LEAST_OF_A_KIND} outsiders of the target, model "
                f"{target}."
            )
        return (target,)
    targets = tuple((fewest >= LEAST_OF_A_KIND).nonzero().flatten().tolist())
    if not targets:
        raise ValueError(
            f"`member` must have {LEAST_OF_A_KIND} members and {LEAST_OF_A_KIND} outsiders of some model: there is "
            "nobody to tell apart."
        )
    return targets


def find_partners(member: Bool[Tensor, "models rows"]) -> Int[Tensor, " models"] | None:
    """Each model's partner, where all models come in complementary pairs; else None."""
    waiting: dict[bytes, list[int]] = {}
    partner = [-1] * len(member)
    for model, row in enumerate(member.numpy()):
        opposite = np.packbits(~row).tobytes()
        if waiting.get(opposite):
            other = waiting[opposite].pop(0)
            partner[model], partner[other] = other, model
        else:
            waiting.setdefault(np.packbits(row).tobytes(), []).append(model)
    return None if -1 in partner else torch.tensor(partner)


def _to_features(values: Any, rows: int, labels: np.ndarray | None) -> Tensor | None:
    """Numbers for each row, (rows, d), NaN where one is missing, infinities as very large, and that of its label."""
    if values is None:
        return None
    table = to_floats("features", values)
    if table.ndim == 0 or len(table) != rows:
        raise ValueError(f"`features` must have one row for each of the {rows} rows, got shape {tuple(table.shape)}.")
    table = table.double().reshape(rows, -1).clamp(-_LARGEST_FEATURE, _LARGEST_FEATURE)
    names = np.zeros(rows) if labels is None else np.unique(labels, return_inverse=True)[1]
    return torch.cat([table, torch.from_numpy(names)[:, None].double()], dim=1)
