r"""Full-batch gradient training of homogeneous networks towards the margin: two-layer ReLU networks, or any module.

Both take the same steps on the same loss. Plain steps follow $-\nabla L$, $L = \frac1n \sum_i \log(1 + e^{-q_i})$ with
$q_i = y_i \Phi(x_i)$. Loss-normalised steps follow $-\nabla \log L$, the same curve run through faster (Lyu and Li
2020); `train` and `train_module` bound their length in different ways.

For two-layer networks no gradient is computed automatically. That of the loss by a neuron's $\tilde w_j = (w_j, b_j)$
is a combination of the training points $\tilde x_i = (x_i, 1)$, so
$\tilde w_j(t) = \tilde w_j(0) + \sum_i C_{ij} \tilde x_i$ holds exactly. With more dimensions than points the trainer
moves the coefficients $C$ (the dual route), with fewer the weights themselves (the primal route): the same steps, at
the cost of the smaller space.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import logsigmoid, softplus

from reproduced.papers.kkt_margin.two_layer import TwoLayer

_EXPONENTIAL_TAIL = 30.0  # from here on log(softplus(-q)) is -q to 1e-13
_CHECK_EVERY = 50  # steps between two checks whether all networks have arrived: a GPU has to wait for each


@dataclass(frozen=True)
class Descent:
    r"""Lengths of the steps, and when they end.

    Attributes:
        learning_rate: η of plain gradient descent on the mean logistic loss; `None` for loss-normalised steps.
        margin: a network stops when its smallest $q_i = y_i \Phi(x_i)$ reaches this; infinite for never.
        stability: $c$, the first cap of a loss-normalised step.
        growth: $c_2$, the second cap.
    """

    steps: int
    learning_rate: float | None = None
    margin: float = math.inf
    stability: float = 0.5
    growth: float = 0.1


Networks = TypeVar("Networks", covariant=True)
"""The kind that is trained: two-layer networks, or the parameters of a module by name."""


@dataclass(frozen=True, eq=False)
class Training(Generic[Networks]):
    r"""Trained networks.

    Attributes:
        margins: $q_i = y_i \Phi(x_i)$ of the training points.
        steps: how many steps each network took.
        snapshots: the networks at the steps asked for.
    """

    model: Networks
    margins: Float[Tensor, "*b n"]
    steps: Int[Tensor, "*b"]
    snapshots: tuple[Networks, ...] = ()

    @property
    def margin(self) -> Float[Tensor, "*b"]:
        """The smallest $q_i$; not positive where the network does not fit all labels."""
        return self.margins.amin(-1)


def train(
    model: TwoLayer,
    points: Float[Tensor, "*b n d"],
    labels: Float[Tensor, "*b n"],
    descent: Descent,
    *,
    snapshots: Sequence[int] = (),
    route: str = "auto",
) -> Training[TwoLayer]:
    r"""Train two-layer networks; leading dimensions are independent networks with points of their own.

    $$ \theta \leftarrow \theta + \eta_t \sum_i p_i\, y_i \nabla_\theta \Phi(x_i), \qquad
       p_i = -\partial_{q_i} \log L, \qquad
       \eta_t = \min\Bigl(\frac{c}{\sum_i p_i \lVert \nabla\Phi(x_i) \rVert^2},
                          \frac{c_2}{\sum_i p_i \lVert \tilde x_i \rVert}\Bigr) $$

    for loss-normalised steps. The first cap keeps the softmax p stable at large margins, the second bounds the growth
    per step near a small initialisation. The subgradient of the ReLU at 0 is 0, as in PyTorch.

    Args:
        model: the initial networks, which are not changed.
        labels: ±1.
        snapshots: step counts (0 to `descent.steps`, increasing) at which the networks are kept.
        route: `dual`, `primal`, or `auto` for the cheaper one. They differ by rounding only.
    """
    dual = points.shape[-1] + 1 >= points.shape[-2] if route == "auto" else route == "dual"
    return _descend(_TwoLayers(model, points, labels, dual=dual), descent, snapshots=snapshots)


def train_module(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    points: Float[Tensor, "n d"],
    labels: Float[Tensor, " n"],
    descent: Descent,
) -> Training[dict[str, Tensor]]:
    r"""Train one network of any module, by automatic differentiation.

    $$ \theta \leftarrow \theta + \eta_t\, g, \qquad g = -\nabla \log L, \qquad
       \eta_t = \min\Bigl(\frac{c}{\lVert g \rVert^2}, c_2 \frac{\lVert \theta \rVert}{\lVert g \rVert}\Bigr) $$

    for loss-normalised steps: to first order, the logarithm of the loss falls by at most $c$ in a step, and $c_2$ is
    the longest step relative to the parameters. A network without gradient stays where it is.

    Args:
        module: the architecture; its own parameters are not read and may be on the `meta` device.
        parameters: the initial ones by name, which are not changed.
        labels: ±1.
        descent: with smaller caps than for `train`: those make a network of degree 3 oscillate.
    """
    return _descend(_Module(module, parameters, points, labels), descent)


def log_loss(margins: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    r"""$\log \ell(q)$ of the logistic loss $\ell(q) = \log(1 + e^{-q})$, finite for every finite q."""
    near = margins.clamp_max(_EXPONENTIAL_TAIL)
    return torch.where(margins > _EXPONENTIAL_TAIL, -margins, softplus(-near).log())


def loss_shares(margins: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    r"""$p_i = -\partial_{q_i} \log \sum_j \ell(q_j)$, each point's share of the direction; their sum tends to 1.

    Computed as $\operatorname{softmax}(\log \ell)_i \cdot (-\ell'/\ell)(q_i)$: large margins are subtracted first.
    """
    losses = log_loss(margins)
    return losses.softmax(-1) * (logsigmoid(-margins) - losses).exp()


def _descend(state: "_TwoLayers | _Module", descent: Descent, *, snapshots: Sequence[int] = ()) -> Training[Any]:
    """Take steps until every network has arrived; those that have wait for the others."""
    every = 1 if state.steps.device.type == "cpu" else _CHECK_EVERY
    copies = {}
    for step in range(descent.steps):
        if step in snapshots:
            copies[step] = state.networks()
        margins = state.margins()
        moving = margins.amin(-1) < descent.margin
        if step % every == 0 and not bool(moving.any()):
            break
        state.advance(margins, moving, descent)
        state.steps += moving
    last, margins = state.networks(), state.margins()
    if not bool(margins.isfinite().all()):  # NaN would count as a margin that was reached
        count = int((~margins.isfinite()).any(-1).sum())
        raise ValueError(f"`descent` must have shorter steps: {count} networks diverged with {descent}.")
    return Training(last, margins, state.steps, tuple(copies.get(step, last) for step in snapshots))


class _TwoLayers:
    r"""Two-layer networks: $Z = Z(0) + A P$ with $A = K$, $P = C$ (dual) or $A = \tilde X$, $P = \Delta W$ (primal)."""

    def __init__(self, model: TwoLayer, points: Tensor, labels: Tensor, *, dual: bool) -> None:
        self.start, self.labels, self.dual = model, labels, dual
        self.lifted = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
        self.square = self.lifted.square().sum(-1)
        self.lengths = self.square.sqrt()
        kernel = self.lifted @ self.lifted.mT if dual else self.lifted
        first = model.preactivations(points).detach()
        # Written anew in each step: reusing the buffers avoids heap fragmentation.
        self.height, self.active = torch.empty_like(first), torch.empty_like(first)
        self.moved = first.new_zeros((*kernel.shape[:-2], kernel.shape[-1], first.shape[-1]))
        # Z(0), A and P, and where Z goes, with one leading dimension.
        self.sides = [part.reshape(-1, *part.shape[-2:]) for part in (first, kernel, self.moved)]
        self.result = self.height.view(-1, *self.height.shape[-2:])
        self.outputs = model.outputs.detach()
        self.steps = torch.zeros(labels.shape[:-1], dtype=torch.int64, device=labels.device)

    def margins(self) -> Float[Tensor, "*b n"]:
        """The present $q_i$; the activations $[Z]_+$ are kept, computed in place: each pass over memory counts."""
        torch.baddbmm(*self.sides, out=self.result).clamp_min_(0)
        return self.labels * _products(self.height, self.outputs)

    def advance(self, margins: Float[Tensor, "*b n"], moving: Bool[Tensor, "*b"], descent: Descent) -> None:
        """Take one step, in place, with the networks that move."""
        height = self.height
        active = torch.sign(height, out=self.active)  # 1 where a neuron is on, 0 where it is off or at its kink
        if descent.learning_rate is None:
            share = loss_shares(margins)
            slopes = self.square * _products(active, self.outputs.square())
            slopes += torch.linalg.vector_norm(height, dim=-1).square()  # without an array of the squares
            length = torch.minimum(
                descent.stability / (share * slopes).sum(-1), descent.growth / (share * self.lengths).sum(-1)
            )
            strength = length.unsqueeze(-1) * share
        else:
            strength = descent.learning_rate * torch.sigmoid(-margins) / margins.shape[-1]
        strength = torch.where(moving.unsqueeze(-1), strength * self.labels, 0.0)
        push = active.mul_(strength.unsqueeze(-1)).mul_(self.outputs.unsqueeze(-2))
        self.outputs = self.outputs + (strength.unsqueeze(-2) @ height).squeeze(-2)
        self.moved += push if self.dual else self.lifted.mT @ push

    def networks(self) -> TwoLayer:
        change = (self.moved.mT @ self.lifted) if self.dual else self.moved.mT
        return TwoLayer(self.start.weights + change[..., :-1], self.start.biases + change[..., -1], self.outputs)


def _products(rows: Float[Tensor, "*b n k"], vector: Float[Tensor, "*b k"]) -> Float[Tensor, "*b n"]:
    """Every row times the vector, which is on the left: on the right it takes a CPU five times as long."""
    return (vector.unsqueeze(-2) @ rows.mT).squeeze(-2)


class _Module:
    """One network of a module."""

    def __init__(self, module: nn.Module, start: Mapping[str, Tensor], points: Tensor, labels: Tensor) -> None:
        self.module, self.points, self.labels = module, points, labels
        self.parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in start.items()}
        self.steps = torch.zeros((), dtype=torch.int64, device=points.device)

    def margins(self) -> Float[Tensor, " n"]:
        """The present $q_i$; their graph is kept for the next step."""
        outputs = functional_call(self.module, self.parameters, (self.points,), strict=True)
        if outputs.shape != self.labels.shape:  # any other shape would broadcast to wrong margins
            raise ValueError(f"`module` must give outputs (t,) for points (t, d), got {tuple(outputs.shape)}.")
        self.graph = self.labels * outputs
        return self.graph.detach()

    def advance(self, margins: Float[Tensor, " n"], moving: Bool[Tensor, ""], descent: Descent) -> None:
        rate, tensors = descent.learning_rate, list(self.parameters.values())
        strength = loss_shares(margins) if rate is None else torch.sigmoid(-margins) / len(margins)
        gradients = torch.autograd.grad((strength * self.graph).sum(), tensors)
        if rate is None:
            steepness = _squared_norm(gradients).clamp_min(torch.finfo(margins.dtype).tiny)
            size = _squared_norm(tensors)
            length = torch.minimum(descent.stability / steepness, descent.growth * (size / steepness).sqrt())
        else:
            length = margins.new_tensor(rate)
        with torch.no_grad():
            for tensor, gradient in zip(tensors, gradients, strict=True):
                tensor += torch.where(moving, length, 0.0) * gradient

    def networks(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.parameters.items()}


def _squared_norm(tensors: Sequence[Tensor]) -> Float[Tensor, ""]:
    return torch.stack([tensor.detach().flatten().square().sum(-1) for tensor in tensors]).sum(0)
