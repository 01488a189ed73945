r"""Models trained on parts of one pool, as attackers meet them: what they answer, and which points each was trained on.

Each model is attacked in turn as the *target*; the other models, except its partner, are the attacker's *shadow
models*. What the models answer is asked once and kept, in float64. An attack that needs something the models do not
offer (weights of a forest, logits where only losses were saved, enough shadow models) raises `NotAvailable`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from leakage import arguments
from leakage.attacks.membership import posterior
from leakage.models import mlp
from leakage.models.classifier import Classifier, Estimator, EstimatorClassifier, ModuleClassifier, check_logits
from leakage.models.mlp import Mlp

_WITHOUT_EFFECT = (nn.Flatten, nn.Identity, nn.Dropout)  # layers that leave a trained network's answers to rows alone


class NotAvailable(ValueError):
    """Something that an attack needs and these models do not offer."""


class ShadowSupport(NamedTuple):
    """What the shadow models of the targets offer.

    Attributes:
        models: shadow models of each target.
        both: whether each target has a point that one shadow model was trained on and another was not.
        members: the most shadow models that were trained on one point, of the target that has fewest.
        outsiders: likewise of shadow models that were not trained on it.
        outsiders_everywhere: whether each point has a shadow model that was not trained on it.
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
        networks: from points to logits; an `Mlp` where attackers may look inside. Empty where only losses were saved.
        points: one a row, of any shape; networks are given float64.
        labels: true classes.
        member: which model was trained on which point.
        partner: each model's partner, in complementary pairs (`data.membership_splits`); None for independent subsets.
        saved_losses: losses of the true label in nats, where nothing else was kept (`from_losses`).
        saved_correct: whether each prediction is right, where losses were saved.
        population: losses of every model on points that no model was trained on, for RMIA.
        targets: the models that are attacked; None for all.

    Raises:
        ValueError: if shapes do not fit, a label is no class, or partners are not complementary.
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

    def __post_init__(self) -> None:
        models, count = arguments.check_truth("member", self.member, "models points").shape
        if self.partner is not None:
            _check_partners(self.member, self.partner)
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
        points: Float[Tensor, "points ..."],
        labels: Int[Tensor, " points"],
        member: Bool[Tensor, "models points"],
        partner: Int[Tensor, " models"] | None = None,
    ) -> "TrainedModels":
        """PyTorch modules that give logits; attackers may look inside those of `Linear` and `ReLU` layers.

        Raises:
            ValueError: as `TrainedModels`.
        """
        return cls([_with_weights(module) for module in modules], points, labels, member, partner)

    @classmethod
    def from_estimators(
        cls,
        estimators: Sequence[Estimator],
        points: Any,
        labels: Any,
        member: Any,
        partner: Any = None,
    ) -> "TrainedModels":
        """Fitted scikit-learn classifiers, with rows and labels as they were given to `fit`: arrays or lists.

        Raises:
            ValueError: if a row is no row of numbers, a label is no class of any estimator, or as `TrainedModels`.
        """
        truth, seen = np.asarray(labels), np.asarray(member)
        if not np.isin(seen, (0, 1)).all():
            raise ValueError(f"`member` must hold truth values, or 0 and 1, got others of type {seen.dtype}.")
        known = [np.asarray(getattr(one, "classes_", np.unique(truth))) for one in estimators]
        classes = np.unique(np.concatenate(known))
        place = np.searchsorted(classes, truth).clip(max=len(classes) - 1)
        if not np.array_equal(classes[place], truth):  # noqa: TID251  classes, which may be strings
            raise ValueError(f"`labels` must be classes that the estimators know, {arguments.shown(classes.tolist())}.")
        return cls(
            [EstimatorClassifier(one, classes) for one in estimators],
            torch.as_tensor(np.asarray(points, dtype=float)),
            torch.as_tensor(place),
            torch.as_tensor(seen.astype(bool)),
            None if partner is None else torch.as_tensor(np.asarray(partner)),
        )

    @classmethod
    def from_losses(
        cls,
        losses: Float[Tensor, "*e models points"],
        member: Bool[Tensor, "models points"],
        partner: Int[Tensor, " models"] | None = None,
        **more: Any,
    ) -> "TrainedModels":
        """Saved losses in nats, of every model at every point; `more` are `saved_correct`, `population`, `targets`.

        Leading axes of `losses` (epochs, say) share the members; `evaluate` takes none.

        Raises:
            ValueError: if a loss is negative or not finite, or as `TrainedModels`.
        """
        return cls((), None, None, member, partner, saved_losses=losses, **more)

    # ── what attackers see ──────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def classifiers(self) -> tuple[Classifier, ...]:
        """The networks as functions from rows (t, d) to logits, for questions of the attacker's own."""
        shape = self.rows.shape[1:] if self.points is None else self.points.shape[1:]
        return tuple(one if len(shape) == 1 or isinstance(one, Mlp) else _Reshaped(one, shape) for one in self.networks)

    @cached_property
    def weights(self) -> tuple[Mlp, ...]:
        """The networks with their weights, each with a hidden layer."""
        if not self.networks or not all(isinstance(one, Mlp) and len(one.weights) > 1 for one in self.networks):
            raise NotAvailable("needs weights: each network an `Mlp` with a hidden layer")
        return tuple(one.to(torch.float64) for one in self.networks if isinstance(one, Mlp))

    @cached_property
    def rows(self) -> Float64[Tensor, "points d"]:
        """The points as rows of numbers."""
        if self.points is None:
            raise NotAvailable("needs the models and points: only losses were given")
        return self.points.double().flatten(1)

    @cached_property
    def true_labels(self) -> Int[Tensor, " points"]:
        """The labels."""
        if self.labels is None:
            raise NotAvailable("needs the labels: only losses were given")
        return self.labels

    @cached_property
    def logits(self) -> Float64[Tensor, "models points classes"]:
        """What every model answers at every point."""
        answers = [_logits(one, self.rows) for one in self.classifiers]
        if len({one.shape[1] for one in answers}) > 1:
            raise ValueError(
                f"`networks` must have logits of the same classes, got {[one.shape[1] for one in answers]} of them; "
                "scikit-learn's come through `TrainedModels.from_estimators`."
            )
        return torch.stack(answers)

    @property
    def margins(self) -> Float64[Tensor, "*e models points"]:
        r"""$\log \frac{p}{1-p}$ of the true label, from logits or from losses (`posterior`)."""
        return self._answers[0] if self.saved_losses is None else posterior.logit_of_loss(self.saved_losses)

    @property
    def correct(self) -> Bool[Tensor, "models points"]:
        """Whether the true label has the largest logit."""
        if self.saved_losses is None:
            return self._answers[1]
        if self.saved_correct is None:
            raise NotAvailable("needs predictions: only losses were given")
        return self.saved_correct

    @property
    def losses(self) -> Float[Tensor, "*e models points"]:
        """Cross-entropies of the true label, in nats; saved ones as they are."""
        return nn.functional.softplus(-self.margins) if self.saved_losses is None else self.saved_losses

    @cached_property
    def _answers(self) -> tuple[Tensor, Tensor]:
        """Margins and right answers, one model after the other: the logits of all are many numbers."""
        known = self.__dict__.get("logits")
        each = (_logits(one, self.rows) for one in self.classifiers) if known is None else known
        margins, right = [], []
        for logits in each:
            labels = arguments.check_whole("labels", self.true_labels, most=logits.shape[-1] - 1)
            margins.append(posterior.label_logit(logits, labels))
            right.append(posterior.correct(logits, labels).bool())
        return torch.stack(margins), torch.stack(right)

    # ── targets and shadow models ───────────────────────────────────────────────────────────────────────────────────

    @property
    def target_numbers(self) -> tuple[int, ...]:
        """The models that are attacked."""
        return tuple(range(len(self.member))) if self.targets is None else self.targets

    def select_targets(self, table: Tensor) -> Tensor:
        """The rows of the targets, of a table with a row for each model."""
        return table if self.targets is None else table[..., list(self.targets), :]

    @cached_property
    def target_member(self) -> Bool[Tensor, "targets points"]:
        """The members of the targets."""
        return self.select_targets(self.member)

    @cached_property
    def shadows(self) -> Bool[Tensor, "models models"]:
        """Which models, along the second axis, are shadow models of each target."""
        models = torch.arange(len(self.member), device=self.member.device)
        own = models[:, None] == models
        return ~own if self.partner is None else ~(own | (self.partner[:, None] == models))

    @property
    def first_of_pairs(self) -> Int[Tensor, " pairs"]:
        """One model of each complementary pair, where models come in pairs; else all."""
        models = torch.arange(len(self.member), device=self.member.device)
        return models if self.partner is None else models[models < self.partner]

    def next_shadow(self, target: int) -> int:
        """The shadow model on which a classifier that attacks the target is fitted: the next one."""
        models = len(self.member)
        return next(i for step in range(1, models) if bool(self.shadows[target, i := (target + step) % models]))

    @cached_property
    def shadow_support(self) -> ShadowSupport:
        """How many shadow models of either kind the targets have."""
        trained, models, found = self.member.sum(0), len(self.member), []
        for target in self.target_numbers:
            own = [target] if self.partner is None else [target, int(self.partner[target])]
            members = trained - self.member[own].sum(0)
            outsiders = models - len(own) - members
            both = bool(((members > 0) & (outsiders > 0)).any())
            found.append((both, int(members.max()), int(outsiders.max()), bool((outsiders > 0).all())))
        both, members, outsiders, everywhere = zip(*found, strict=True)
        return ShadowSupport(
            models - (1 if self.partner is None else 2), all(both), min(members), min(outsiders), all(everywhere)
        )

    def need_shadows(self, *, members: int = 0, outsiders: int = 0) -> None:
        """Raise `NotAvailable` unless some point has so many shadow models trained on it, and so many that were not."""
        found = self.shadow_support
        enough = found.members >= members and found.outsiders >= outsiders
        if not enough or (members and outsiders and not found.both):
            least = members + outsiders + (1 if self.partner is None else 2)
            saw = f"{members} shadow models that saw a point and " if members else ""
            raise NotAvailable(f"needs {saw}{outsiders} that did not: ≥ {least} models")

    # ── parts of the same models ────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def sorted_by_content(self) -> "tuple[TrainedModels, Int[Tensor, ' points']]":
        """The same with its points in an order that follows from their content alone, and that order."""
        order = self.rows.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
        return self.select_points(order), order

    def select_points(self, order: Int[Tensor, " points"]) -> "TrainedModels":
        """The same with its points in another order, or fewer of them."""
        rows = {name: getattr(self, name) for name in ("points", "labels")}
        columns = {name: getattr(self, name) for name in ("saved_losses", "saved_correct")}
        rows = {name: None if part is None else part[order] for name, part in rows.items()}
        columns = {name: None if part is None else part[..., order] for name, part in columns.items()}
        return replace(self, member=self.member[:, order], **rows, **columns)

    def leave_out(self, models: Sequence[int]) -> "TrainedModels":
        """The same without these models, neither as targets nor as shadow models; partners go together."""
        kept = [model for model in range(len(self.member)) if model not in models]
        place = {model: i for i, model in enumerate(kept)}
        tables = {name: getattr(self, name) for name in ("member", "saved_losses", "saved_correct", "population")}
        partner = None if self.partner is None else torch.tensor([place[int(self.partner[one])] for one in kept])
        targets = [place[one] for one in self.target_numbers if one in place]
        return replace(
            self,
            networks=[self.networks[one] for one in kept] if self.networks else (),
            partner=partner,
            targets=None if len(targets) == len(kept) else tuple(targets),
            **{name: None if table is None else table[..., kept, :] for name, table in tables.items()},
        )


@dataclass(frozen=True, eq=False)
class _Reshaped:
    """A network whose points have a shape, for points as rows."""

    network: Classifier
    shape: tuple[int, ...]

    def __call__(self, rows: Float[Tensor, "t d"]) -> Tensor:
        return self.network(rows.reshape(len(rows), *self.shape))


def _logits(network: Classifier, rows: Float64[Tensor, "t d"]) -> Float64[Tensor, "t classes"]:
    network = network.to(torch.float64) if isinstance(network, Mlp) else network
    return check_logits(network(rows), count=len(rows)).detach().double()


def _with_weights(module: nn.Module) -> Classifier:
    """The weights of a module that is a plain ReLU network; any other one as a function."""
    if isinstance(module, nn.Sequential):
        layers = [layer for layer in module if not isinstance(layer, _WITHOUT_EFFECT)]
        plain = layers and isinstance(layers[0], nn.Linear) and len(layers) % 2
        try:
            return mlp.from_module(nn.Sequential(*layers)).to(torch.float64) if plain else ModuleClassifier(module)
        except ValueError:  # it has some other layer
            return ModuleClassifier(module)
    return ModuleClassifier(module)


def _check_partners(member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]) -> None:
    """Refuse partners that are not complementary: the count of members among the others would tell the target's."""
    partner = arguments.check_whole("partner", partner, "models", most=len(member) - 1, models=len(member)).long()
    models = torch.arange(len(partner), device=partner.device)
    if bool((partner == models).any()) or not bool((partner[partner] == models).all()):
        raise ValueError(f"`partner` must pair each model with another one, mutually; got {partner.tolist()}.")
    if not all(bool((member[one] ^ member[other]).all()) for one, other in enumerate(partner.tolist())):
        raise ValueError(
            "`member` must be complementary within pairs: otherwise the count of members among the other models "
            "tells who was one; draw it with `complementary_pairs`."
        )
