r"""Models trained on parts of one pool, as attackers see them: their outputs, and which points each was trained on.

Each model is attacked in turn as the *target*; the other models, except its partner, are the attacker's *shadow
models*. Outputs are computed once and kept, in float64. An attack raises `NotAvailable` if it needs something that the
models do not have (weights of a forest, logits where only losses were saved, enough shadow models).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from sklearn.utils.validation import _num_samples
from torch import Tensor, nn

from leakage import arguments
from leakage.arrays import to_classes, to_floats, to_matrix, to_rows, to_tensor
from leakage.membership import posterior
from leakage.membership.shadow_models import shadow_matrix
from leakage.models import mlp
from leakage.models.classifier import Classifier, EstimatorClassifier, ModuleClassifier, check_logits
from leakage.models.mlp import Mlp

_WITHOUT_EFFECT = (nn.Flatten, nn.Identity, nn.Dropout)  # layers that do not change the output of a trained network


class NotAvailable(ValueError):
    """An attack needs something that these models do not have."""


class ShadowSupport(NamedTuple):
    """How many shadow models the targets have, and how many of them were trained on a point, or were not.

    Attributes:
        both: whether each target has a point that one shadow model was trained on and another was not.
        members: the largest number of shadow models that were trained on the same point; the least over the targets.
        outsiders: the same for shadow models that were not trained on it.
        outsiders_everywhere: whether, for each target, each point has a shadow model that was not trained on it.
    """

    models: int
    both: bool
    members: int
    outsiders: int
    outsiders_everywhere: bool


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """Models, the points whose membership is asked about, and which model was trained on which point.

    Attributes:
        networks: functions from points to logits; `Mlp`s if attacks may use weights; empty if only losses were saved.
        points: one in each row, of any shape; networks receive them in float64.
        partner: each model's partner, in complementary pairs (`data.membership_splits`); None for independent subsets.
        saved_losses: losses of the true label in nats, if there are no networks; with `saved_correct` if predictions
            are known.
        population: losses of every model on points that no model was trained on, for RMIA.
        targets: the models that are attacked; None for all.
        units: each point's unit, such as the patient of a visit, from 0; every model was trained on all points of a
            unit or on none. Scores are averaged over it, and counts are of units. None where each point is one.
        probabilities: whether losses are -log p of the true label, so that they have a logit.
        features: what an attacker knows of each point, as numbers or NaN, for attacks that compare points.
    """

    networks: Sequence[Classifier]
    points: Float[Tensor, "points ..."] | None
    labels: Int[Tensor, " points"] | None
    member: Bool[Tensor, "models points"]
    partner: Int[Tensor, " models"] | None = None
    saved_losses: Float[Tensor, "*e models points"] | None = None
    saved_correct: Bool[Tensor, "models points"] | None = None
    population: Float[Tensor, "models z"] | None = None
    targets: tuple[int, ...] | None = None
    units: Int[Tensor, " points"] | None = None
    probabilities: bool = True
    features: Float[Tensor, "points d"] | None = None

    def __post_init__(self) -> None:
        models, count = arguments.check_truth("member", self.member, "models points").shape
        if self.partner is not None:
            _check_partners(self.member, self.partner)
        if any(not 0 <= one < models for one in self.target_numbers) or [*self.target_numbers] != sorted(
            {*self.target_numbers}
        ):
            raise ValueError(f"`targets` must be numbers of models in ascending order, got {self.targets}.")
        if self.units is not None:
            arguments.check_whole("units", self.units, "points", points=count)
        if self.population is not None:
            arguments.check_real("population", self.population, "models z", least=0, models=models)
        if self.features is not None:
            arguments.check_tensor("features", self.features, "points d", points=count)
        if self.saved_losses is not None:
            arguments.check_real("losses", self.saved_losses, "*e models points", least=0, models=models, points=count)
            return
        arguments.check_real("points", self.points)
        if len(self.networks) != models or self.points is None or len(self.points) != count:
            raise ValueError(
                f"`member` must be (models, points) of {len(self.networks)} networks and of `points`, "
                f"{() if self.points is None else tuple(self.points.shape)}, got {tuple(self.member.shape)}."
            )
        arguments.check_whole("labels", self.labels, "points", points=count)

    @classmethod
    def from_modules(
        cls,
        modules: Sequence[nn.Module],
        points: Any,
        labels: Any,
        member: Any,
        partner: Any = None,
    ) -> "TrainedModels":
        """PyTorch modules that return logits; attacks may use the weights of `Linear` and `ReLU` layers.

        Modules may be on a GPU. Their answers come back to the device of the points, where attacks compute.
        """
        asked = points if isinstance(points, Tensor) else to_floats("points", points).double()
        device, (mask, partners) = asked.device, _to_masks(member, partner)
        classes = torch.from_numpy(to_classes("labels", labels, whole=True)).to(device)
        networks = [_to_classifier(module, device) for module in modules]
        return cls(networks, asked, classes, mask.to(device), None if partners is None else partners.to(device))

    @classmethod
    def from_estimators(
        cls,
        estimators: Sequence[Any],
        points: Any,
        labels: Any,
        member: Any,
        partner: Any = None,
    ) -> "TrainedModels":
        """Fitted scikit-learn classifiers, with rows and labels as they were given to `fit`.

        Rows that are no finite numbers, such as texts, frames with names and sparse ones, are asked about once: attacks
        that change rows are then left out.
        """
        if not isinstance(estimators, Sequence | np.ndarray):
            raise TypeError(f"`estimators` must be a list of fitted ones, got {type(estimators).__name__}.")
        names, masks = to_classes("labels", labels), _to_masks(member, partner)
        rows, shape = _num_samples(to_rows("points", points)), tuple(masks[0].shape)
        if len(estimators) == 0 or shape != (len(estimators), rows) or len(names) != rows:
            raise ValueError(
                f"`member` must be (models, points), one row for each of `estimators`, and `labels` one for each of "
                f"`points`; got {len(estimators)} estimators, {rows} points, {len(names)} labels and `member` {shape}."
            )
        lacking = [type(one).__name__ for one in estimators if not hasattr(one, "classes_")]
        if lacking:
            raise TypeError(f"`estimators` must have `classes_`, as `fit` gives it, got none from {lacking[0]}.")
        known = [np.asarray(one.classes_) for one in estimators]
        classes = np.unique(np.concatenate(known))
        place = np.searchsorted(classes, names).clip(max=len(classes) - 1)
        if not np.array_equal(classes[place], names):  # noqa: TID251  classes may be strings
            raise ValueError(f"`labels` must be classes of the estimators, {arguments.shown(classes.tolist())}.")
        networks, asked = [EstimatorClassifier(one, classes) for one in estimators], _to_points(points, estimators)
        codes = torch.from_numpy(place)
        if asked is not None:
            return cls(networks, asked, codes, *masks)
        margins, right = _ask(networks, to_rows("points", points), codes)
        return cls((), None, codes, *masks, saved_losses=nn.functional.softplus(-margins), saved_correct=right)

    @classmethod
    def from_losses(
        cls,
        losses: Float[Tensor, "*e models points"],
        member: Bool[Tensor, "models points"],
        partner: Int[Tensor, " models"] | None = None,
        **more: Any,
    ) -> "TrainedModels":
        """Saved losses in nats, of every model at every point; `more` are other attributes, such as `saved_correct`.

        `losses` may have leading axes, such as epochs, that share `member`; `evaluate` needs losses without them.
        """
        return cls((), None, None, member, partner, saved_losses=losses, **more)

    @cached_property
    def classifiers(self) -> tuple[Classifier, ...]:
        """The networks as functions from rows (t, d) to logits, for attacks that query them at new points."""
        shape = self.rows.shape[1:] if self.points is None else self.points.shape[1:]
        return tuple(
            one if len(shape) == 1 or isinstance(one, Mlp) else partial(_apply_to_rows, one, shape)
            for one in self.networks
        )

    @cached_property
    def mlps(self) -> tuple[Mlp, ...]:
        """The networks as `Mlp`s with a hidden layer, for attacks that use weights."""
        if not self.networks or not all(isinstance(one, Mlp) and len(one.weights) > 1 for one in self.networks):
            raise NotAvailable("needs weights: each network an `Mlp` with a hidden layer")
        return tuple(one.to(torch.float64) for one in self.networks if isinstance(one, Mlp))

    @cached_property
    def rows(self) -> Float64[Tensor, "points d"]:
        """The points as rows of float64 numbers."""
        if self.points is None:
            raise NotAvailable("needs the models and points: only losses were given")
        return self.points.double().flatten(1)

    @cached_property
    def true_labels(self) -> Int[Tensor, " points"]:
        """The labels, for attacks that need them."""
        if self.labels is None:
            raise NotAvailable("needs the labels: only losses were given")
        return self.labels

    @cached_property
    def logits(self) -> Float64[Tensor, "models points classes"]:
        """Logits of every model at every point."""
        answers = [_logits(one, self.rows) for one in self.classifiers]
        if len({one.shape[1] for one in answers}) > 1:
            raise ValueError(
                f"`networks` must have logits of the same classes, got {[one.shape[1] for one in answers]}; for "
                "scikit-learn classifiers, use `TrainedModels.from_estimators`."
            )
        return torch.stack(answers)

    @property
    def margins(self) -> Float64[Tensor, "*e models points"]:
        r"""$\log \frac{p}{1-p}$ of the true label, from logits or from losses; -ℓ of losses without probabilities."""
        if self.saved_losses is None:
            return self._margins_and_correct[0]
        return posterior.logit_of_loss(self.saved_losses) if self.probabilities else -self.saved_losses.double()

    @property
    def correct(self) -> Bool[Tensor, "models points"]:
        """Whether the true label has the largest logit."""
        if self.saved_losses is None:
            return self._margins_and_correct[1]
        if self.saved_correct is None:
            raise NotAvailable("needs predictions: only losses were given")
        return self.saved_correct

    @property
    def losses(self) -> Float[Tensor, "*e models points"]:
        """Cross-entropies of the true label in nats: the saved losses if there are any."""
        return nn.functional.softplus(-self.margins) if self.saved_losses is None else self.saved_losses

    @cached_property
    def _margins_and_correct(self) -> tuple[Tensor, Tensor]:
        """`margins` and `correct`."""
        cached = self.__dict__.get("logits")
        asked = self.classifiers if cached is None else [lambda _, own=own: own for own in cached]
        return _ask(asked, self.rows, self.true_labels)

    @property
    def target_numbers(self) -> tuple[int, ...]:
        """The models that are attacked."""
        return tuple(range(len(self.member))) if self.targets is None else self.targets

    def select_targets(self, table: Tensor) -> Tensor:
        """The targets' rows of a table that has one row for each model."""
        return table if self.targets is None else table[..., list(self.targets), :]

    def average_units(self, table: Tensor) -> Tensor:
        """The means over the points of each unit; the table itself where each point is one."""
        if self.units is None:
            return table
        sums = table.new_zeros(*table.shape[:-1], int(self.units.max()) + 1)
        return sums.index_add(-1, self.units, table) / self.units.bincount()

    @cached_property
    def unit_member(self) -> Bool[Tensor, "models units"]:
        """Whether each model was trained on each unit."""
        return self.member if self.units is None else self.average_units(self.member.double()) > 0.5

    @cached_property
    def target_member(self) -> Bool[Tensor, "targets units"]:
        """Whether each target was trained on each unit."""
        return self.select_targets(self.unit_member)

    @cached_property
    def shadows(self) -> Bool[Tensor, "models models"]:
        """Whether the second model is a shadow model when the first is the target."""
        return shadow_matrix(len(self.member), self.partner, device=self.member.device).bool()

    def next_shadow(self, target: int) -> int:
        """The first shadow model after the target, for attacks that fit their classifier on one shadow model."""
        models = len(self.member)
        others = [(target + step) % models for step in range(1, models)]
        shadows = [one for one in others if bool(self.shadows[target, one])]
        if not shadows:
            raise NotAvailable("needs a shadow model")
        return shadows[0]

    @cached_property
    def shadow_support(self) -> ShadowSupport:
        """How many shadow models the targets have that were trained on a point, and that were not."""
        inside, found = self.member.int(), []
        trained, shadows = inside.sum(0, dtype=inside.dtype), len(inside) - (1 if self.partner is None else 2)
        for target in self.target_numbers:
            members = trained - inside[target]
            if self.partner is not None:
                members = members - inside[self.partner[target]]
            fewest, most = (int(end) for end in members.aminmax())
            both = bool(((members > 0) & (members < shadows)).any())
            found.append((both, most, shadows - fewest, most < shadows))
        both, members, outsiders, everywhere = zip(*found, strict=True)
        return ShadowSupport(shadows, all(both), min(members), min(outsiders), all(everywhere))

    def need_shadows(self, *, members: int = 0, outsiders: int = 0) -> None:
        """Raise `NotAvailable` if a target has too few shadow models that were trained on a point, or that were not."""
        found = self.shadow_support
        enough = found.members >= members and found.outsiders >= outsiders
        if not enough or (members and outsiders and not found.both):
            least = members + outsiders + (1 if self.partner is None else 2)
            few = (
                f"{members} trained on a point and {outsiders} not"
                if members
                else f"{outsiders} not trained on a point"
            )
            raise NotAvailable(f"needs shadow models: {few}, so ≥ {least} models")

    @cached_property
    def sorted_by_content(self) -> "tuple[TrainedModels, Int[Tensor, ' points']]":
        """These models with the points sorted by their values alone, and the order that sorts them."""
        order = self.rows.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
        return self.select_points(order), order

    def select_points(self, order: Int[Tensor, " points"]) -> "TrainedModels":
        """These models with the points in another order, or with fewer points."""
        rows = {name: getattr(self, name) for name in ("points", "labels", "units", "features")}
        columns = {name: getattr(self, name) for name in ("saved_losses", "saved_correct")}
        rows = {name: None if part is None else part[order] for name, part in rows.items()}
        columns = {name: None if part is None else part[..., order] for name, part in columns.items()}
        return replace(self, member=self.member[:, order], **rows, **columns)

    def leave_out(self, models: Sequence[int]) -> "TrainedModels":
        """The other models, without these as targets or shadow models; a model and its partner must go together."""
        kept = [model for model in range(len(self.member)) if model not in models]
        place = {model: i for i, model in enumerate(kept)}
        tables = {name: getattr(self, name) for name in ("member", "saved_losses", "saved_correct", "population")}
        partner = [] if self.partner is None else [place[int(self.partner[one])] for one in kept]
        targets = [place[one] for one in self.target_numbers if one in place]
        return replace(
            self,
            networks=[self.networks[one] for one in kept] if self.networks else (),
            partner=None if self.partner is None else torch.tensor(partner, device=self.partner.device),
            targets=None if len(targets) == len(kept) else tuple(targets),
            **{name: None if table is None else table[..., kept, :] for name, table in tables.items()},
        )


def _apply_to_rows(network: Classifier, shape: tuple[int, ...], rows: Float[Tensor, "t d"]) -> Tensor:
    """The logits of a network whose points have this shape."""
    return network(rows.reshape(len(rows), *shape))


def _logits(network: Classifier, rows: Any) -> Float64[Tensor, "t classes"]:
    network = network.to(torch.float64) if isinstance(network, Mlp) else network
    return check_logits(network(rows), count=_num_samples(rows)).detach().double()


def _to_classifier(module: nn.Module, device: torch.device) -> Classifier:
    """An `Mlp` with the module's weights if it is a plain ReLU network, otherwise the module as a function."""
    if isinstance(module, nn.Sequential):
        layers = [layer for layer in module if not isinstance(layer, _WITHOUT_EFFECT)]
        plain = layers and isinstance(layers[0], nn.Linear) and len(layers) % 2
        plain = plain and getattr(layers[-1], "out_features", 0) > 1  # one output stands for two logits
        try:
            opened = mlp.from_module(nn.Sequential(*layers)).to(torch.float64).to(device) if plain else None
            return opened or ModuleClassifier(module)
        except ValueError:  # it has another kind of layer
            return ModuleClassifier(module)
    return ModuleClassifier(module)


def _check_partners(member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]) -> None:
    """Refuse partners that are not complementary: the other models would reveal the members of the target."""
    partner = arguments.check_whole("partner", partner, "models", most=len(member) - 1, models=len(member)).long()
    models = torch.arange(len(partner), device=partner.device)
    if bool((partner == models).any()) or not bool((partner[partner] == models).all()):
        raise ValueError(f"`partner` must pair each model with another one, mutually; got {partner.tolist()}.")
    if not all(bool((member[one] ^ member[other]).all()) for one, other in enumerate(partner.tolist())):
        raise ValueError(
            "`member` must be complementary within pairs, otherwise the number of other models trained on a point "
            "reveals whether the target was; draw it with `complementary_pairs`."
        )


def _to_masks(member: Any, partner: Any) -> tuple[Tensor, Tensor | None]:
    return to_matrix("member", member, boolean=True), None if partner is None else to_tensor("partner", partner)


def _to_points(points: Any, estimators: Sequence[Any]) -> Tensor | None:
    """Points as finite numbers, which attacks may change; None where the estimators must get them as they are."""
    named = hasattr(points, "columns") and any(hasattr(one, "feature_names_in_") for one in estimators)
    if named or hasattr(points, "tocsr"):
        return None
    try:
        found = to_floats("points", points).double()
    except (TypeError, ValueError):
        return None
    return found if bool(found.isfinite().all()) else None


def _ask(networks: Sequence[Classifier], points: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Margins, and whether predictions are right, model by model, because logits of all together need much memory."""
    margins, right = [], []
    for model, network in enumerate(networks):
        try:
            logits = _logits(network, points)
        except Exception as error:
            raise ValueError(
                f"model {model} fails on `points`, {type(points).__name__}: {str(error).rstrip('.')}; give them as it "
                "takes them, or its losses to `audit.of_losses`."
            ) from error
        arguments.check_whole("labels", labels, most=logits.shape[-1] - 1)
        margins.append(posterior.label_logit(logits, labels))
        right.append(posterior.correct(logits, labels).bool())
    return torch.stack(margins), torch.stack(right)
