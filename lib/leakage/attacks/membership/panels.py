r"""Models trained on parts of one pool, as attackers meet them: what they answer, and who trained on what.

Each model is the target once, and the others, less its partner, are its attacker's shadow models. Whatever is computed
of the models is computed once and kept, in float64; but logits that nobody asked for only a block of points at a time,
so that points mapped from a file, more than fit into memory, will do for margins and losses. What a panel does not have
(weights of a module, logits where only losses were saved) raises `Hidden` when an attack asks for it. Nothing here
trains, draws or attacks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from leakage import arguments, blocks
from leakage.attacks.membership import posterior
from leakage.data.membership_splits import check_design
from leakage.models import mlp
from leakage.models.classifier import Classifier, Estimator, OfEstimator, OfModule, check_logits
from leakage.models.mlp import Mlp

_TRANSPARENT = (nn.Flatten, nn.Identity, nn.Dropout)  # layers that change no answer of a trained network to rows


class Hidden(ValueError):
    """What an attack needs and this panel does not show."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Models and the points whose membership is asked about.

    Attributes:
        networks: from points to logits; an `Mlp` where attackers may look inside. Without them `given` is all there is.
        points: one a row, of any shape; float64 goes into the networks.
        labels: true classes.
        member: which model was trained on which point.
        partner: each model's partner, in complementary pairs (`data.membership_splits`); None for independent subsets.
        given: losses in nats, where nothing else was kept (`of_losses`).

    Raises:
        ValueError: if shapes do not fit, a label is no class, or the design tells who is a member (`check_design`).
    """

    networks: Sequence[Classifier]
    points: Float[Tensor, "points ..."] | None
    labels: Int[Tensor, " points"] | None
    member: Bool[Tensor, "models points"]
    partner: Int[Tensor, " models"] | None = None
    given: Float[Tensor, "models points"] | None = None

    def __post_init__(self) -> None:
        check_design(self.member, self.partner)
        models, count = self.member.shape
        if self.given is not None:
            arguments.real("losses", self.given, "models points", least=0, models=models, points=count)
            return
        arguments.real("points", self.points)
        if len(self.networks) != models or self.points is None or len(self.points) != count:
            raise ValueError(
                f"`member` must be (models, points) of {len(self.networks)} networks and of `points`, "
                f"{() if self.points is None else tuple(self.points.shape)}, got {tuple(self.member.shape)}."
            )
        arguments.whole("labels", self.labels, "points", points=count)

    @classmethod
    def of_modules(
        cls,
        modules: Sequence[nn.Module],
        points: Float[Tensor, "points ..."],
        labels: Int[Tensor, " points"],
        member: Bool[Tensor, "models points"],
        partner: Int[Tensor, " models"] | None = None,
    ) -> "Panel":
        """PyTorch modules that give logits; those of `Linear` and `ReLU` layers are opened.

        Raises:
            ValueError: as `Panel`.
        """
        return cls([_opened(module) for module in modules], points, labels, member, partner)

    @classmethod
    def of_estimators(
        cls,
        estimators: Sequence[Estimator],
        points: Any,
        labels: Any,
        member: Any,
        partner: Any = None,
    ) -> "Panel":
        """Fitted scikit-learn classifiers, with their rows and labels as they were given to `fit`: arrays or lists.

        Raises:
            ValueError: if a row is no row of numbers, a label is no class that some estimator knows, or as `Panel`.
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
            [OfEstimator(one, classes) for one in estimators],
            torch.as_tensor(np.asarray(points, dtype=float)),
            torch.as_tensor(place),
            torch.as_tensor(seen.astype(bool)),
            None if partner is None else torch.as_tensor(np.asarray(partner)),
        )

    @classmethod
    def of_losses(
        cls,
        losses: Float[Tensor, "models points"],
        member: Bool[Tensor, "models points"],
        partner: Int[Tensor, " models"] | None = None,
    ) -> "Panel":
        """Losses that somebody saved, of every model at every point, in nats.

        Raises:
            ValueError: if a loss is negative or not finite, or as `Panel`.
        """
        return cls((), None, None, member, partner, given=losses)

    # ── what attackers see ──────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def asked(self) -> tuple[Classifier, ...]:
        """The networks, for questions of the attacker's own: from rows (t, d) to logits."""
        shape = self._rows(slice(1)).shape[1:] if self.points is None else self.points.shape[1:]
        return tuple(one if len(shape) == 1 or isinstance(one, Mlp) else _Shaped(one, shape) for one in self.networks)

    @cached_property
    def weights(self) -> tuple[Mlp, ...]:
        """The networks, opened, each with a hidden layer."""
        if not self.networks or not all(isinstance(one, Mlp) and len(one.weights) > 1 for one in self.networks):
            raise Hidden("needs weights: each network an `Mlp` with a hidden layer")
        return tuple(one.to(torch.float64) for one in self.networks if isinstance(one, Mlp))

    @cached_property
    def rows(self) -> Float64[Tensor, "points d"]:
        """The points as rows of numbers."""
        return self._rows(slice(None))

    @cached_property
    def truth(self) -> Int[Tensor, " points"]:
        """The labels."""
        if self.labels is None:
            raise Hidden("needs the labels: only losses were given")
        return self.labels

    @cached_property
    def logits(self) -> Float64[Tensor, "models points classes"]:
        """What every model answers at every point."""
        return self._answers(self.rows)

    @cached_property
    def margins(self) -> Float64[Tensor, "models points"]:
        r"""$\log \frac{p}{1-p}$ of the true label: `posterior.margin` of logits, or `posterior.logit` of losses."""
        return self._judged[0] if self.given is None else posterior.logit(self.given)

    @property
    def correct(self) -> Bool[Tensor, "models points"]:
        """Whether the true label has the largest logit."""
        return self._judged[1]

    @cached_property
    def losses(self) -> Float64[Tensor, "models points"]:
        """Cross-entropies of the true label, in nats."""
        if self.given is not None:
            return self.given.double()
        margins = self.margins

        def losses(part: slice) -> Tensor:
            return torch.nn.functional.softplus(-margins[:, part])

        return blocks.made(margins.shape, blocks.of(margins.shape), losses, device=margins.device)

    @cached_property
    def _judged(self) -> tuple[Tensor, Tensor]:
        """Margins and right answers, from logits that are not kept unless they are few."""
        labels, parts = self.truth, self._parts()

        def judged(logits: Tensor, part: slice) -> tuple[Tensor, Tensor]:
            own = arguments.whole("labels", labels[part], most=logits.shape[-1] - 1)
            return posterior.margin(logits, own), posterior.correct(logits, own).bool()

        if len(parts) == 1:
            return judged(self.logits, parts[0])
        device, shape = self.member.device, self.member.shape
        margins, right = (blocks.room(*shape, dtype=dtype, device=device) for dtype in (torch.float64, torch.bool))
        for part in parts:
            margins[:, part], right[:, part] = judged(self._answers(self._rows(part)), part)
        return margins, right

    def _parts(self) -> list[slice]:
        """Blocks of points that are asked at once: all, where their logits are there or are few numbers."""
        models, points = self.member.shape
        if "logits" in self.__dict__:
            return [slice(points)]
        classes = int(self.truth.max()) + 1  # at least; to ask a model how many is a question to it
        return blocks.of((models * classes + self._rows(slice(1)).shape[1], points))

    def _rows(self, part: slice) -> Float64[Tensor, "points d"]:
        if self.points is None:
            raise Hidden("needs the models and points: only losses were given")
        return self.points[part].double().flatten(1)

    def _answers(self, rows: Float64[Tensor, "points d"]) -> Float64[Tensor, "models points classes"]:
        found = [_answer(one, rows) for one in self.asked]
        if len({one.shape[1] for one in found}) > 1:
            raise ValueError(
                f"`networks` must have logits of the same classes, got {[one.shape[1] for one in found]} of them; "
                "scikit-learn's come through `Panel.of_estimators`."
            )
        return torch.stack(found)

    # ── what attackers know of their shadow models ──────────────────────────────────────────────────────────────────

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

    def shadow_of(self, target: int) -> int:
        """The shadow model on which a classifier that attacks the target is fitted: the next one."""
        models = len(self.member)
        return next(i for step in range(1, models) if bool(self.shadows[target, i := (target + step) % models]))

    def need_shadows(self, least: int) -> None:
        """Hide from an attack that needs this many shadow models of either kind, where no point has them."""
        shadows, models = self.shadows.double(), 2 * least + (1 if self.partner is None else 2)
        for kind in (self.member, ~self.member):
            if int((shadows @ kind.double()).amax()) < least:
                raise Hidden(
                    f"needs {least} shadow models that saw a point and {least} that did not: ≥ {models} models"
                )

    # ── other panels ────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def settled(self) -> "tuple[Panel, Int[Tensor, ' points']]":
        """The panel with its points in an order that follows from what they are alone, and that order."""
        order = self.rows.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
        return self.at(order), order

    def at(self, order: Int[Tensor, " points"]) -> "Panel":
        """The same panel with its points in another order, or fewer of them."""
        parts = {name: getattr(self, name) for name in ("points", "labels")}
        moved = {name: None if part is None else part[order] for name, part in parts.items()}
        given = None if self.given is None else self.given[:, order]
        return replace(self, member=self.member[:, order], given=given, **moved)


@dataclass(frozen=True, eq=False)
class _Shaped:
    """A network whose points have a shape, asked by rows."""

    network: Classifier
    shape: tuple[int, ...]

    def __call__(self, rows: Float[Tensor, "t d"]) -> Tensor:
        return self.network(rows.reshape(len(rows), *self.shape))


def _answer(network: Classifier, rows: Float64[Tensor, "t d"]) -> Float64[Tensor, "t classes"]:
    network = network.to(torch.float64) if isinstance(network, Mlp) else network
    return check_logits(network(rows), count=len(rows)).detach().double()


def _opened(module: nn.Module) -> Classifier:
    """The weights of a module that is a plain ReLU network; any other one as it is."""
    if isinstance(module, nn.Sequential):
        layers = [layer for layer in module if not isinstance(layer, _TRANSPARENT)]
        plain = layers and isinstance(layers[0], nn.Linear) and len(layers) % 2
        try:
            return mlp.from_module(nn.Sequential(*layers)).to(torch.float64) if plain else OfModule(module)
        except ValueError:  # some other layer is in it
            return OfModule(module)
    return OfModule(module)
