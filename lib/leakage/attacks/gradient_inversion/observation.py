r"""What the server sees of a batch, and what an attack makes of it.

The server chose a network $f(x) = \sum_j a_j\, \sigma(w_j^\top x) + b$ and gets one gradient back. Divided by the
constant of the loss it is, with the residuals $r_i = f(x_i) - y_i$,

$$ g_j = \frac{\partial L}{\partial a_j} = \sum_i r_i\, \sigma(w_j^\top x_i), \qquad
   G_j = \frac{1}{m a_j} \frac{\partial L}{\partial w_j} = \frac1m \sum_i r_i\, \sigma'(w_j^\top x_i)\, x_i , $$

where the usual $a_j = 1/m$ makes $G_j$ the gradient itself. An `Observation` never holds an input or a label.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from leakage import arguments
from leakage.models.activations import ACTIVATIONS, Activation, activation
from leakage.trainers.federated import find_loss

_PROBES = 4  # neurons along which a module is compared with the formula it is taken for
_LOOKED_AT = 64  # neurons that these are usually among
_REACHES = (3.0, 30.0)  # the pre-activations of such a neuron: where activations bend, and where clipped ones stop
_PRECISIONS = (torch.float32, torch.float64)  # those of the factorisations that attacks rest on


@dataclass(frozen=True, eq=False)
class Observation:
    r"""The network that was sent and the gradient that came back.

    Attributes:
        weights: $w_j$ as rows.
        activation: $\sigma$.
        bias: b.
        outputs: $g_j$, or `None` if only the hidden layer's gradient is known.
        hidden: $G_j$ as rows, or `None` if only the output layer's gradient is known.
        logistic: whether $r_i = \operatorname{sigmoid}(f(x_i)) - y_i$ with labels 0 and 1.
        readout: $a_j$; `None` stands for $1/m$.

    Raises:
        TypeError: if something is no tensor or no `Activation`.
        ValueError: if there is no gradient at all, a shape, dtype or device does not fit, a value is not finite or the
            gradient is zero.
    """

    weights: Float[Tensor, "m d"]
    activation: Activation
    bias: float = 0.0
    outputs: Float[Tensor, " m"] | None = None
    hidden: Float[Tensor, "m d"] | None = None
    logistic: bool = False
    readout: Float[Tensor, " m"] | None = None

    def __post_init__(self) -> None:
        weights = arguments.filled("weights", arguments.real("weights", self.weights, "m d"))
        if weights.dtype not in _PRECISIONS:
            raise ValueError(f"`weights` must be in float32 or float64, got {weights.dtype}; try `.double()`.")
        if not isinstance(self.activation, Activation):
            raise TypeError(f"`activation` must be an Activation, got {self.activation!r}; try `activation(name)`.")
        arguments.number("bias", self.bias)
        if self.outputs is None and self.hidden is None:
            raise ValueError("`outputs` or `hidden` must be given: an observation without a gradient tells nothing.")
        m, d = weights.shape
        for name, shape in {"outputs": "m", "hidden": "m d", "readout": "m"}.items():
            value = getattr(self, name)
            if value is None:
                continue
            arguments.real(name, value, shape, like=weights, m=m, d=d)
            if name != "readout" and not bool(value[0].any()) and not bool(value.any()):  # mostly, one row tells
                raise ValueError(f"`{name}` must not be zero throughout: every residual is 0, or the layer is cut off.")

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        gradient: Mapping[str, Tensor],
        *,
        batch: int,
        loss: str,
        hidden: str | None = None,
        outputs: str | None = None,
        activation: str | None = None,
    ) -> "Observation":
        r"""What a server sees that sent `module` and received `gradient`.

        The module is compared with $\sum_j a_j \sigma(w_j^\top x) + b$ along a few rows of its weights, so that a
        third layer, a hidden bias or another activation is an error here and no wrong answer later.

        Args:
            module: the network that was sent, of two layers without hidden biases.
            gradient: a tensor for each parameter name, as `trainers.federated.batch_gradient` gives it; of the two
                layers one may be missing.
            batch: the number of inputs, which the loss `mean` divides by.
            loss: a name in `trainers.federated.LOSSES`.
            hidden: the parameter that holds the $w_j$; found by its shape where it is not given.
            outputs: the parameter that holds the $a_j$; likewise.
            activation: its name; otherwise the one that reproduces the module.

        Raises:
            ValueError: if the layers are not found or not what they are taken for, an $a_j$ is 0, the batch is empty,
                a name is unknown, or several activations fit and none is named: beside a bias of $10^{13}$ in float64,
                say, or for an odd one and weights in pairs of either sign.
        """
        batch = arguments.count("batch", batch, least=1)
        names = _layers(module, hidden, outputs)
        weights, readout = (module.get_parameter(name).detach() for name in names)
        readout = readout.flatten()
        if not bool(readout.all()):
            raise ValueError(f"`module` must have no zero in {names[1]!r}: the gradient of such a neuron is lost.")
        found, bias = _recognise(module, weights, readout, activation)
        chosen = find_loss(loss)
        scale = chosen.scale(batch)
        bottom, top = (gradient[name].detach() if name in gradient else None for name in names)
        if bottom is not None:
            bottom = bottom / (scale * len(readout) * readout).unsqueeze(-1)
        top = None if top is None else top.flatten() / scale
        return cls(weights, found, bias, top, bottom, chosen.logistic, readout)

    def predictions(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
        r"""$f(x)$ of the network that was sent."""
        values = self.activation(inputs @ self.weights.mT)
        return (values.mean(-1) if self.readout is None else values @ self.readout) + self.bias

    def labels(self, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        r"""$y_i = f(x_i) - r_i$, for the logistic loss $\operatorname{sigmoid}(f(x_i)) - r_i$."""
        outputs = self.predictions(inputs)
        return (torch.sigmoid(outputs) if self.logistic else outputs) - residuals


@dataclass(frozen=True, eq=False)
class Reconstruction:
    r"""A batch that an attack believes in; the order of its rows means nothing.

    Attributes:
        inputs: $\hat x_i$ as rows.
        residuals: $\hat r_i$; one number for each output where a module has several.
        labels: $\hat y_i$, or `None` where the attack cannot tell.
        residual: the relative distance between the gradient of this batch and the one observed; NaN if not computed.
            At rounding level it certifies that the batch is consistent with the gradient, not that it is the only one.
        ambiguous: what leaves the batch undetermined, in words: exact symmetries that lead to other batches with the
            same gradient, inputs without a share in it, and labels that are none of those they may be.
    """

    inputs: Float[Tensor, "B d"]
    residuals: Float[Tensor, "B ..."]
    labels: Real[Tensor, " B"] | None = None
    residual: float = float("nan")
    ambiguous: tuple[str, ...] = ()


def flatten_gradient(observation: Observation) -> Float[Tensor, " n"]:
    """The gradient as one vector, of the layers that were observed."""
    return torch.cat([part.flatten() for part in (observation.outputs, observation.hidden) if part is not None])


def simulate_gradient(
    observation: Observation, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, " B"]
) -> Float[Tensor, " n"]:
    r"""The gradient $(g, G)$ of this batch as `flatten_gradient` orders it; differentiable."""
    values, slopes = observation.activation.derivatives(inputs @ observation.weights.mT, order=1)
    parts = []
    if observation.outputs is not None:
        parts.append((residuals.unsqueeze(-1) * values).sum(0))
    if observation.hidden is not None:
        parts.append(((residuals.unsqueeze(-1) * slopes).mT @ inputs).flatten() / len(observation.weights))
    return torch.cat(parts)


def misfit(observation: Observation, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, " B"]) -> float:
    r"""$\lVert \hat g - g \rVert / \lVert g \rVert$, the distance of a batch's gradient from the one observed.

    Over all neurons and the layers that were observed: rounding alone certifies that the batch explains them.
    """
    target = flatten_gradient(observation)
    return float((simulate_gradient(observation, inputs, residuals) - target).norm() / target.norm())


def _layers(module: nn.Module, hidden: str | None, outputs: str | None) -> tuple[str, str]:
    """The names of the two layers: a matrix with m rows, and m numbers that are no bias."""
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters()}
    for name in (hidden, outputs):
        if name is not None and name not in shapes:
            raise ValueError(f"`module` has no parameter {name!r}; it has {', '.join(shapes)}.")
    pairs = [
        (lower, upper)
        for lower in ([hidden] if hidden else [name for name, shape in shapes.items() if len(shape) == 2])
        for upper in ([outputs] if outputs else [name for name in shapes if not name.endswith("bias")])
        if lower != upper and shapes[upper] in ((shapes[lower][0],), (1, shapes[lower][0]))
    ]
    if len(pairs) != 1:
        raise ValueError(f"`hidden` and `outputs` must name two layers that fit; got {pairs} from {shapes}.")
    return pairs[0]


def _recognise(module: nn.Module, weights: Tensor, readout: Tensor, name: str | None) -> tuple[Activation, float]:
    """The activation and the output bias with which two layers compute what the module does."""
    for part in (weights[:_LOOKED_AT], weights):  # the first rows do, unless they are 0
        rows = part[part.any(1).nonzero()[:_PROBES, 0]]
        if len(rows) == _PROBES:
            break
    if not len(rows):
        raise ValueError("`module` must have hidden weights other than 0: its output is the same for all inputs.")
    steps = [reach * rows / rows.square().sum(1, keepdim=True) for reach in _REACHES]
    probes = torch.cat([torch.zeros_like(rows[:1]), *steps, *(-step for step in steps)])
    try:
        with torch.no_grad():
            expected = module(probes).reshape(-1)
    except RuntimeError as error:
        raise ValueError(f"`module` must take inputs of dimension {weights.shape[1]}: {error}") from error
    if len(expected) != len(probes):
        raise ValueError(f"`module` must give one output for each input, got {len(expected) / len(probes):g}.")
    heights, closest, fitting = probes @ weights.mT, float("inf"), []
    for candidate in [activation(name)] if name else ACTIVATIONS.values():
        values = candidate(heights) @ readout
        bias = float(expected[0] - values[0])
        distance = float((expected - values - bias).abs().max())
        tolerance = torch.finfo(weights.dtype).eps ** 0.75 * max(1.0, float(expected.abs().max()))
        if distance <= tolerance:
            fitting.append((candidate, bias))
        closest = min(closest, distance)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(candidate.name for candidate, _ in fitting)
        raise ValueError(f"`activation` must be given: the outputs fit {names}; a smaller bias would tell.")
    raise ValueError(
        f"`module` must be Σ a·σ(w·x) + b with {name or 'a known activation'}; its outputs are {closest:.1e} away."
        " A hidden bias, a third layer or a layer that draws at random would do this."
    )
