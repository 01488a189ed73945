r"""Full-batch gradient training of any homogeneous module towards the margin, by automatic differentiation.

The slower sibling of `trainers.margin_flow` for networks that have no closed form: the same losses, stops and loop,
except for the length of loss-normalised steps. A module maps points (t, d) to one output each; the parameters of
several networks are stacked along a first dimension, called runs. The module itself is never changed.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakage.trainers.margin_flow import Descent, Training, descend, loss_shares
from leakage.trainers.modules import check_stacked

_CHUNK = 256  # points whose outputs are computed at once

Forward = Callable[[dict[str, Tensor], Tensor], Tensor]


def train(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    points: Float[Tensor, "runs n d"],
    labels: Float[Tensor, "runs n"],
    descent: Descent,
    *,
    route: str = "auto",
) -> Training[dict[str, Tensor]]:
    r"""Train a network on each set of points.

    Plain steps follow $-\nabla L$, $L = \frac1n \sum_i \log(1 + e^{-q_i})$. Loss-normalised steps follow
    $g = -\nabla \log L$, the same curve run through faster (Lyu and Li 2020):

    $$ \theta \leftarrow \theta + \eta_t\, g, \qquad
       \eta_t = \min\Bigl(\frac{c}{\lVert g \rVert^2}, c_2 \frac{\lVert \theta \rVert}{\lVert g \rVert}\Bigr), $$

    with $c$ the descent's `stability`, by which the logarithm of the loss may fall in one step (to first order), and
    $c_2$ its `growth`, the longest step relative to the parameters. A network without gradient stays where it is.

    Args:
        module: the form of the networks; its own parameters are not read and may be on the `meta` device.
        parameters: the initial ones, stacked, by the module's names; left as they are.
        points: training points.
        labels: ±1.
        descent: steps and stop, shorter ones than `margin_flow`'s: those make a network of degree 3 oscillate.
        route: `loop` trains one network after the other, `vmap` all at once, `auto` chooses the faster: `loop` on a
            CPU, where large stacks miss the cache, and `vmap` elsewhere. They differ by rounding only.
    """
    _check_stack(module, parameters, points)
    if route == "auto":
        route = "loop" if points.device.type == "cpu" else "vmap"
    stack = {name: tensor.detach() for name, tensor in parameters.items()}
    if route == "vmap":
        return descend(_Modules(_together(module), stack, points, labels), descent)
    parts = [
        descend(_Modules(_alone(module), _at(stack, run), points[run], labels[run]), descent)
        for run in (slice(index, index + 1) for index in range(len(points)))
    ]
    trained = {name: torch.cat([part.model[name] for part in parts]) for name in stack}
    return Training(trained, torch.cat([part.margins for part in parts]), torch.cat([part.steps for part in parts]))


@torch.no_grad()
def outputs(
    module: nn.Module, parameters: Mapping[str, Tensor], points: Float[Tensor, "runs t d"]
) -> Float[Tensor, "runs t"]:
    r"""$\Phi(\theta; x)$ of every network at its own points, a chunk of them at a time."""
    _check_stack(module, parameters, points)
    found = points.new_empty(points.shape[:-1])
    for run in range(len(points)):
        own = _at(parameters, slice(run, run + 1))
        for start in range(0, points.shape[-2], _CHUNK):
            chunk = slice(start, start + _CHUNK)
            found[run, chunk] = _alone(module)(own, points[run : run + 1, chunk]).squeeze(0)
    return found


class _Modules:
    """A stack of networks of one module."""

    def __init__(self, forward: Forward, start: dict[str, Tensor], points: Tensor, labels: Tensor) -> None:
        self.forward, self.points, self.labels = forward, points, labels
        self.parameters = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        self.steps = torch.zeros(len(points), dtype=torch.int64, device=points.device)

    def margins(self) -> Float[Tensor, "runs n"]:
        """See `margin_flow.Motion`; the graph of the outputs is kept."""
        found = self.forward(self.parameters, self.points)
        if found.shape != self.labels.shape:  # anything else would broadcast in silence
            raise ValueError(f"`module` must give outputs (t,) for points (t, d); got {tuple(found.shape[1:])}.")
        self.graph = self.labels * found
        return self.graph.detach()

    def advance(self, margins: Float[Tensor, "runs n"], moving: Bool[Tensor, " runs"], descent: Descent) -> None:
        """See `margin_flow.Motion`."""
        rate, tensors = descent.learning_rate, list(self.parameters.values())
        strength = loss_shares(margins) if rate is None else torch.sigmoid(-margins) / margins.shape[-1]
        # The networks share nothing, so the gradient of the sum over them holds the gradient of each.
        gradients = torch.autograd.grad((strength * self.graph).sum(), tensors)
        if rate is None:
            steepness = _squared_norm(gradients).clamp_min(torch.finfo(margins.dtype).tiny)
            size = _squared_norm([tensor.detach() for tensor in tensors])
            length = torch.minimum(descent.stability / steepness, descent.growth * (size / steepness).sqrt())
        else:
            length = torch.full_like(margins[:, 0], rate)
        length = torch.where(moving, length, 0.0)
        with torch.no_grad():
            for tensor, gradient in zip(tensors, gradients, strict=True):
                tensor += length.reshape(-1, *[1] * (tensor.ndim - 1)) * gradient

    def networks(self) -> dict[str, Tensor]:
        """See `margin_flow.Motion`."""
        return {name: tensor.detach().clone() for name, tensor in self.parameters.items()}


def _squared_norm(tensors: list[Tensor] | tuple[Tensor, ...]) -> Float[Tensor, " runs"]:
    return torch.stack([tensor.flatten(1).square().sum(-1) for tensor in tensors]).sum(0)


def _together(module: nn.Module) -> Forward:
    """All networks of a stack in one call."""
    return vmap(lambda parameters, points: functional_call(module, parameters, (points,)))


def _alone(module: nn.Module) -> Forward:
    """The only network of a stack, without the overhead of stacking."""

    def forward(parameters: dict[str, Tensor], points: Tensor) -> Tensor:
        own = {name: tensor.squeeze(0) for name, tensor in parameters.items()}
        return functional_call(module, own, (points.squeeze(0),)).unsqueeze(0)

    return forward


def _at(parameters: Mapping[str, Tensor], runs: slice) -> dict[str, Tensor]:
    return {name: tensor[runs] for name, tensor in parameters.items()}


def _check_stack(module: nn.Module, parameters: Mapping[str, Tensor], points: Tensor) -> None:
    check_stacked("parameters", parameters, dict(module.named_parameters()), len(points))
    try:
        _alone(module)(_at(parameters, slice(0, 1)), points[:1, :1])
    except RuntimeError as error:
        raise ValueError(f"`points` must be what `module` takes, got {tuple(points.shape)}: {error}") from error
