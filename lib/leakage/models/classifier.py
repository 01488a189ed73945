r"""Classifiers as functions from points to logits: adapters for PyTorch modules and scikit-learn estimators.

An attack that needs only labels or only posteriors takes any `Classifier`: an `Mlp`, your own function, or one of the
two adapters. Adapters give float64 on the device of the points and no gradient; they do not change what they wrap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Num
from torch import Tensor, nn

from leakage import arguments

Classifier = Callable[[Tensor], Tensor]
"""Logits `(t, classes)` of points `(t, …)`; log-posteriors are accepted too."""
_POINTS_AT_ONCE = 4096  # points at once


@dataclass(frozen=True, eq=False)
class ModuleClassifier:
    """A PyTorch module that gives logits, called in evaluation mode on one chunk of points at a time.

    Points go in on the device of the module's first parameter and, unless they are whole numbers, with its dtype, or in
    float32 where there is none. One output o of each point stands for the two logits 0 and o of a binary classifier.

    Attributes:
        name: the argument that a message about its outputs names.
    """

    module: nn.Module
    name: str = "network"

    @torch.no_grad()
    def __call__(self, points: Num[Tensor, "t ..."]) -> Float64[Tensor, "t classes"]:
        """The logits."""
        parameter = next(self.module.parameters(), torch.empty(0, device=points.device))
        destination = parameter if points.is_floating_point() else parameter.device
        modes = [(layer, layer.training) for layer in self.module.modules()]
        self.module.eval()
        try:
            outputs = [self.module(chunk) for chunk in points.to(destination).split(_POINTS_AT_ONCE)]
        finally:
            for layer, training in modes:
                layer.training = training
        if not all(isinstance(part, Tensor) for part in outputs):
            raise TypeError(
                f"`{self.name}` must return a tensor of logits, got {type(outputs[0]).__name__}; wrap it in a module "
                "whose `forward` returns the logits alone, such as `self.inner(x).logits` or `self.inner(x)[0]`."
            )
        logits = two_logits(torch.cat(outputs), count=len(points))
        return check_logits(logits, count=len(points), name=self.name).to(points.device, torch.float64)


@dataclass(frozen=True, eq=False)
class EstimatorClassifier:
    r"""A fitted scikit-learn classifier; its logits are $\log \max(p, 2^{-52})$ of its posteriors p.

    A posterior below $2^{-52}$ is lost in rounding beside 1. Column k belongs to the estimator's `classes_[k]`,
    or with `classes` to `classes[k]`. An estimator that gives labels only, as a linear support vector machine does, has
    posterior 1 for its label.

    Attributes:
        estimator: it has a method `predict_proba`, or `predict` and `classes_`.
        classes: all classes, ascending; an estimator that was fitted on few rows may know fewer.
    """

    estimator: Any
    classes: np.ndarray | None = None

    def __call__(self, points: Any) -> Float64[Tensor, "t classes"]:
        """The logits, of a tensor or of what else the estimator takes."""
        rows = points.detach().cpu().numpy() if isinstance(points, Tensor) else points
        posteriors = torch.from_numpy(_posteriors(self.estimator, rows))
        if self.classes is not None and posteriors.ndim == 2:
            classes = np.asarray(self.classes)
            known = np.asarray(getattr(self.estimator, "classes_", classes))
            if bool((classes[1:] <= classes[:-1]).any()) or not bool(np.isin(known, classes).all()):
                raise ValueError(
                    f"`classes` must ascend and hold those of the estimator, {arguments.shown(known.tolist())}, got "
                    f"{arguments.shown(classes.tolist())}."
                )
            columns = torch.from_numpy(np.searchsorted(classes, known))
            posteriors = posteriors.new_zeros(len(posteriors), len(classes)).index_copy(1, columns, posteriors)
        logits = posteriors.clamp_min(torch.finfo(torch.float64).eps).log()
        return check_logits(logits, count=len(logits)).to(points.device if isinstance(points, Tensor) else "cpu")


def _posteriors(estimator: Any, points: Any) -> np.ndarray:
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(points), dtype=float)
    if not hasattr(estimator, "predict") or not hasattr(estimator, "classes_"):
        raise TypeError(
            f"`estimator` must have `predict_proba`, or `predict` and `classes_`, got a {type(estimator).__name__}."
        )
    return (np.asarray(estimator.predict(points))[:, None] == np.asarray(estimator.classes_)).astype(float)


def two_logits(output: Tensor, *, count: int) -> Tensor:
    """Logits 0 and o where a module gives one output o of each of `count` points, (count) or (count, 1)."""
    if tuple(output.shape) not in ((count,), (count, 1)):
        return output
    single = output.reshape(count)
    return torch.stack([torch.zeros_like(single), single], -1)


def check_logits(logits: Tensor, *, count: int, name: str = "network") -> Tensor:
    """`logits` if they are those of `count` points and of two classes or more; `ValueError` otherwise."""
    if logits.ndim != 2 or len(logits) != count or logits.shape[1] < 2:
        raise ValueError(
            f"`{name}` must give logits ({count}, classes) with two classes or more, got {tuple(logits.shape)}; "
            "one output o of a binary classifier stands for the two logits 0 and o."
        )
    return logits
