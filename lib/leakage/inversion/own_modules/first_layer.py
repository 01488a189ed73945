r"""The first linear layer of a network of any depth, and its part of the gradient of a batch.

With $z_i = W x_i + c$, $\tilde x_i = (x_i, 1)$ and $\delta_i = \partial L / \partial z_i$,

$$ M = \left[ \frac{\partial L}{\partial W}, \frac{\partial L}{\partial c} \right] = \sum_i \delta_i \tilde x_i^\top,
   \qquad \delta_i = \left( \frac{\partial f(x_i)}{\partial z_i} \right)^{\!\top} \rho_i, \quad
   \rho_i = \frac{\partial L}{\partial f(x_i)}, $$

for every loss, every network f above the layer and any number of outputs; without a bias, $\tilde x_i = x_i$. For the
cross-entropy $\rho_i = s\, (\operatorname{softmax}(f(x_i)) - e_{y_i})$, with $s = 1/B$ for the mean and 1 for the sum,
so that the label is the one negative entry. A copy of the module computes in float64, for gradients of any precision.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import one_hot

from leakage import arguments, draws
from leakage.inversion.federated import LOSSES

CROSS_ENTROPY = "cross_entropy"
_PROBES = 8  # inputs with which a module is tried
_MOST_LAYERS = 8  # that a message names
_RESIDUAL_TOLERANCE = 1e-2  # relative distance from those of a cross-entropy: rounding leaves 1e-4 in float32


class NoRoute(ValueError):
    """No attack here can find the batch behind this gradient; the message says what was seen and what is missing."""


@dataclass(frozen=True, eq=False)
class FirstLayer:
    r"""The network that was sent, by its first layer, and the gradient that came back.

    Attributes:
        name: of the layer in the module.
        network: a copy of the module in float64.
        shape: of one input, as the module takes it.
        gradient: by parameter names, in float64; missing parts are unknown.
        precision: of the gradient that came back.
        output_count: k, the number of outputs.
        readout: the name of a bias that is added to the outputs, so that its gradient is $\sum_i \rho_i$; or `None`.
    """

    name: str
    network: nn.Module
    layer: nn.Linear
    shape: tuple[int, ...]
    gradient: Mapping[str, Tensor]
    precision: torch.dtype
    output_count: int = 0
    readout: str | None = None

    @property
    def biased(self) -> bool:
        """Whether the layer has a bias, which determines the lengths and signs of inputs."""
        return self.layer.bias is not None

    @property
    def rows(self) -> Float[Tensor, "m n"]:
        r"""M, of which the last column is the gradient of the bias if there is one."""
        parts = [self.gradient[_parameter(self.name, "weight")]]
        if self.biased:
            parts.append(self.gradient[_parameter(self.name, "bias")].unsqueeze(-1))
        return torch.cat(parts, dim=1)

    @property
    def weights(self) -> Float[Tensor, "m n"]:
        r"""$[W, c]$, with which $z_i = [W, c]\, \tilde x_i$."""
        parts = [self.layer.weight, *([self.layer.bias.unsqueeze(-1)] if self.biased else [])]
        return torch.cat(parts, dim=1).detach()

    def with_bias(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, "B n"]:
        r"""$\tilde x_i$, the inputs with a last coordinate 1 if the layer has a bias."""
        return torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1) if self.biased else inputs

    def outputs(self, inputs: Float[Tensor, "B d"], shift: Float[Tensor, "B m"] | float = 0.0) -> Float[Tensor, "B k"]:
        """f, a row for each input, with `shift` added to the outputs of the first layer; differentiable."""
        handle = self.layer.register_forward_hook(lambda *called: called[-1] + shift)
        try:
            return self.network(inputs.reshape(len(inputs), *self.shape)).reshape(len(inputs), -1)
        finally:
            handle.remove()

    def slopes(self, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"]) -> Float[Tensor, "B m"]:
        r"""$\delta_i$ of these inputs and $\rho_i$, as rows; differentiable by `torch.func`."""
        shift = inputs.new_zeros((len(inputs), self.layer.out_features))
        return torch.func.grad(lambda moved: (residuals * self.outputs(inputs, moved)).sum())(shift)

    def output_slopes(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, "B k m"]:
        r"""$\partial f(x_i) / \partial z_i$."""
        width = self.outputs(inputs).shape[1]
        unit = torch.eye(width, dtype=inputs.dtype, device=inputs.device)
        rows = torch.func.vmap(lambda row: self.slopes(inputs, row.expand(len(inputs), width)))(unit)
        return rows.transpose(0, 1)

    def simulate_gradient(self, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"]) -> dict[str, Tensor]:
        """The gradient of this batch, by parameter names."""
        shaped = inputs.reshape(len(inputs), *self.shape)
        names, values = zip(*self.network.named_parameters(), strict=True)
        # With other leaves than the parameters themselves, and without `torch.func`, whose first use takes seconds.
        leaves = [value.detach().requires_grad_() for value in values]
        with torch.enable_grad():
            outputs = torch.func.functional_call(self.network, dict(zip(names, leaves, strict=True)), (shaped,))
            total = (residuals * outputs.reshape(len(inputs), -1)).sum()
        found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        return dict(zip(names, found, strict=True))

    def is_deterministic(self, *, generator: torch.Generator) -> bool:
        """Whether every output depends on its own input alone, without randomness."""
        inputs = _probes(self.layer, generator)
        try:
            with torch.no_grad():
                once, alone = self.outputs(inputs), torch.cat([self.outputs(row) for row in inputs.split(1)])
                twice = self.outputs(inputs)
        except (RuntimeError, ValueError):  # a batch normalisation in training takes no single input
            return False
        return all(torch.allclose(once, other, rtol=1e-9, atol=1e-12) for other in (twice, alone))

    def is_rectified(self, *, generator: torch.Generator) -> bool:
        r"""Whether neurons with $z \le 0$ are cut off, and those with $z > 0$ are not, as by a ReLU above the layer."""
        inputs, width = _probes(self.layer, generator), self.layer.out_features
        size, like = (len(inputs), width), inputs
        values = draws.gaussian(size, generator=generator, like=like)
        # Every neuron is tried just above and below 0, too, where a shifted or clipped ReLU differs.
        values[:2] = 1e-3 * torch.tensor([[1.0], [-1.0]], dtype=like.dtype, device=like.device)
        shift = (values - self.layer(inputs)).detach().requires_grad_()
        with torch.enable_grad():
            outputs = self.outputs(inputs, shift)
            weights = draws.gaussian(outputs.shape, generator=generator, like=like)
            (found,) = torch.autograd.grad((weights * outputs).sum(), shift)
        return not bool(found[values < 0].any()) and bool(found[values > 0].any())


def find_first_layer(
    module: nn.Module, gradient: Mapping[str, Tensor], *, shape: Sequence[int] | None, generator: torch.Generator
) -> FirstLayer:
    """The first layer of a module, with the gradient; a `NoRoute` is raised if it is not linear, or not the first."""
    name, layer = next(
        (name, part) for name, part in module.named_modules() if next(part.parameters(recurse=False), None) is not None
    )
    if not isinstance(layer, nn.Linear):
        raise NoRoute(
            f"`module` must begin with nn.Linear, got {type(layer).__name__} at {name!r}, for which there is no route"
            f" (for two layers as bare parameters there is `recover`); seen: {describe(module)}."
        )
    size = tuple(shape) if shape is not None else (layer.in_features,)
    if int(torch.Size(size).numel()) != layer.in_features:
        raise ValueError(f"`shape` must have {layer.in_features} entries, as {name!r} takes, got {size}.")
    for part in ("weight", *(["bias"] if layer.bias is not None else [])):
        if _parameter(name, part) not in gradient:
            raise ValueError(f"`gradient` must have {_parameter(name, part)!r}, the first layer's; has {[*gradient]}.")
    network = copy.deepcopy(module).double()
    for value in network.parameters():
        value.requires_grad_(False)
    inner = network.get_submodule(name)
    assert isinstance(inner, nn.Linear)
    precision = gradient[_parameter(name, "weight")].dtype
    doubled = {key: value.detach().double() for key, value in gradient.items()}
    found = FirstLayer(name, network, inner, size, doubled, precision)
    width = _count_outputs(found, generator)
    return replace(found, output_count=width, readout=_find_readout(found, width))


def name_gradient(module: nn.Module, gradient: Mapping[str, Tensor] | Sequence[Tensor | None]) -> dict[str, Tensor]:
    """A gradient by the names of the module's parameters, checked and on their device; `None` parts are unknown."""
    known = dict(module.named_parameters())
    if not known:
        raise ValueError("`module` must have parameters, got none.")
    if not isinstance(gradient, Mapping):
        if len(gradient) != len(known):
            raise ValueError(f"`gradient` must have {len(known)} parts, one for each parameter, got {len(gradient)}.")
        gradient = {name: part for name, part in zip(known, gradient, strict=True) if part is not None}
    if strangers := [name for name in gradient if name not in known]:
        raise ValueError(f"`gradient` must name parameters of `module`, got {strangers}; it has {', '.join(known)}.")
    for name, part in gradient.items():
        label, value = f"gradient[{name!r}]", known[name]
        arguments.check_real(label, part)
        if part.shape != value.shape:
            raise ValueError(f"`{label}` must be {tuple(value.shape)}, as the parameter, got {tuple(part.shape)}.")
        if part.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"`{label}` must be in float32 or float64, got {part.dtype}; try `.float()`.")
    if not any(bool(part.any()) for part in gradient.values()):
        raise ValueError("`gradient` must not be zero throughout: every residual is 0, or all neurons are dead.")
    return {name: part.to(known[name].device) for name, part in gradient.items()}


def describe(module: nn.Module) -> str:
    """The layers of a module in a line, with sizes and biases."""
    seen = []
    for name, layer in module.named_modules():
        if next(layer.children(), None) is not None or not name:
            continue
        text = f"{name} {type(layer).__name__}"
        if isinstance(layer, nn.Linear):
            text += f"({layer.in_features}→{layer.out_features}, {'a' if layer.bias is not None else 'no'} bias)"
        seen.append(text)
    more = f" and {len(seen) - _MOST_LAYERS} more" if len(seen) > _MOST_LAYERS else ""
    return (", ".join(seen[:_MOST_LAYERS]) + more) or ", ".join(name for name, _ in module.named_parameters())


def single_residual(first: FirstLayer, inputs: Float[Tensor, "1 d"]) -> Float[Tensor, "1 k"]:
    r"""$\rho$ of a single input: the gradient of an output bias, or what gives $\delta$; NaN if neither exists."""
    if first.readout is not None:
        return first.gradient[first.readout].unsqueeze(0)
    slopes, gradient = first.output_slopes(inputs)[0], first.rows[:, -1]
    if int(torch.linalg.matrix_rank(slopes)) < len(slopes):
        return torch.full_like(slopes[:, :1].mT, torch.nan)
    return (torch.linalg.pinv(slopes.mT) @ gradient).unsqueeze(0)


def residual_signs(residuals: Float[Tensor, "B k"], loss: str | None) -> Float[Tensor, " B"] | None:
    """1 where residuals may be those of a cross-entropy, -1 where their opposites may; `None` for other losses.

    One entry of three or more is negative, the label's.
    """
    if loss != CROSS_ENTROPY or residuals.shape[1] < 3:
        return None
    return torch.where((residuals < 0).sum(1) <= 1, 1.0, -1.0).to(residuals)


def find_labels(
    first: FirstLayer, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"], loss: str | None, *, batch: int
) -> tuple[Tensor | None, tuple[str, ...]]:
    r"""The labels of a batch, and what speaks against them in words; `None` without a loss or residuals.

    $y_i = \arg\min_c \rho_{ic}$ for the cross-entropy, $f(x_i) - r_i$ for the losses of one output, with
    $r_i = \rho_i / c$ and the constant c of the loss.

    Source: Zhao et al. (2020), iDLG, for the sign of the label's entry.
    """
    if loss is None or not bool(residuals.isfinite().all()):
        return None, ()
    found = first.outputs(inputs)
    if loss != CROSS_ENTROPY:
        chosen = LOSSES[loss]
        values = (torch.sigmoid(found) if chosen.logistic else found) - residuals / chosen.scale(batch)
        return values.squeeze(-1), ()
    classes = residuals.argmin(dim=1)
    expected = torch.softmax(found, dim=1) - one_hot(classes, residuals.shape[1])
    scale = (expected * residuals).sum() / expected.square().sum()
    error = float((scale * expected - residuals).norm()) / float(residuals.norm())
    if error > _RESIDUAL_TOLERANCE or not bool(scale > 0):
        return classes, ("labels: the residuals are not those of a plain cross-entropy",)
    return classes, ()


def _parameter(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _probes(layer: nn.Linear, generator: torch.Generator) -> Tensor:
    like = layer.weight
    return draws.gaussian((_PROBES, layer.in_features), generator=generator, like=like)


def _count_outputs(first: FirstLayer, generator: torch.Generator) -> int:
    """The number of outputs of a module whose first layer sees the inputs unchanged, once."""
    calls: list[Tensor] = []
    inputs = _probes(first.layer, generator)
    handle = first.layer.register_forward_pre_hook(lambda _layer, given: calls.append(given[0].detach()))
    try:
        with torch.no_grad():
            width = first.outputs(inputs).shape[1]
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(
            f"`module` must take inputs of shape (B, {', '.join(map(str, first.shape))}), or `shape` must be that of"
            f" one input: {error}"
        ) from error
    finally:
        handle.remove()
    if len(calls) != 1 or calls[0].shape != inputs.shape or not torch.allclose(calls[0], inputs, rtol=1e-12, atol=0):
        raise NoRoute(
            f"`module` must pass its inputs to {first.name!r} once and unchanged; they are changed before, or it is"
            f" called {len(calls)} times. Give the module from this layer on: the inputs found are then the layer's."
        )
    return width


def _find_readout(first: FirstLayer, width: int) -> str | None:
    """The last bias with as many entries as there are outputs, if it is added to them."""
    names = [n for n, part in first.network.named_parameters() if n.endswith("bias") and part.shape == (width,)]
    if not names or names[-1] not in first.gradient or names[-1] == _parameter(first.name, "bias"):
        return None
    weights = torch.arange(1, width + 1).to(first.layer.weight).unsqueeze(0)
    try:
        found = first.simulate_gradient(first.layer.weight.new_zeros((1, first.layer.in_features)), weights)[names[-1]]
    except (RuntimeError, ValueError):  # a layer may take no single input in training; see `is_deterministic`
        return None
    return names[-1] if torch.allclose(found, weights[0], rtol=1e-12) else None
