r"""What a server sees of a client's batch, and the batch that an attack reconstructs from it.

The server chose a network $f(x) = \sum_j a_j\, \sigma(w_j^\top x) + b$ and receives one gradient. Divided by the
constant of the loss, and with the residuals $r_i = f(x_i) - y_i$, it is

$$ g_j = \frac{\partial L}{\partial a_j} = \sum_i r_i\, \sigma(w_j^\top x_i), \qquad
   G_j = \frac{1}{m a_j} \frac{\partial L}{\partial w_j} = \frac1m \sum_i r_i\, \sigma'(w_j^\top x_i)\, x_i . $$

With the usual $a_j = 1/m$, $G_j$ is the gradient itself. An `Observation` never holds an input or a label.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from leakage.inversion.activations import ACTIVATIONS, Activation, activation
from leakage.inversion.federated import LOSSES

_PROBE_ROWS = 4  # neurons along whose weights a module is compared with the formula
_PREACTIVATIONS = (3.0, 30.0)  # of such a neuron: where activations bend, and where clipped ones stop


@dataclass(frozen=True, eq=False)
class Observation:
    r"""The network that the server sent and the gradient that came back.

    Attributes:
        weights: $w_j$ as rows.
        outputs: $g_j$, and `hidden` $G_j$ as rows; one of them is `None` where only the other is known.
        logistic: whether $r_i = \operatorname{sigmoid}(f(x_i)) - y_i$ with labels 0 and 1.
        readout: $a_j$; `None` stands for $1/m$.
    """

    weights: Float[Tensor, "m d"]
    activation: Activation
    bias: float = 0.0
    outputs: Float[Tensor, " m"] | None = None
    hidden: Float[Tensor, "m d"] | None = None
    logistic: bool = False
    readout: Float[Tensor, " m"] | None = None

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

        The outputs of the module are compared with $\sum_j a_j \sigma(w_j^\top x) + b$ at a few inputs, so that a third
        layer, a hidden bias or another activation raises an error and does not lead to a wrong batch.

        Args:
            gradient: a tensor for each parameter name, as `inversion.federated.batch_gradient` gives it; that of one
                layer may be missing.
            batch: the number of inputs, by which the losses that are means divide.
            hidden: the parameter that holds the $w_j$; by default the one whose shape fits. Likewise `outputs`.
            activation: its name; by default the one that reproduces the outputs of the module.
        """
        names = _find_layers(module, hidden, outputs)
        weights, readout = (module.get_parameter(name).detach() for name in names)
        readout = readout.flatten()
        if not bool(readout.all()):
            raise ValueError(f"`module` must have no zero in {names[1]!r}: the gradient of such a neuron is lost.")
        found, bias = _identify_activation(module, weights, readout, activation)
        chosen = LOSSES[loss]
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
    r"""A batch that an attack found; its rows are in any order.

    Attributes:
        residuals: $\hat r_i$; a row of numbers for each input where a module has several outputs.
        labels: $\hat y_i$, or `None` where the attack cannot tell.
        misfit: the relative distance between the gradient of this batch and the observed one; NaN if not computed.
            At rounding level it certifies that the batch is consistent with the gradient, not that it is the only one.
        ambiguities: what leaves the batch undetermined, in words: symmetries that lead to other batches with the same
            gradient, inputs that do not contribute to it, and labels outside the possible ones.
    """

    inputs: Float[Tensor, "B d"]
    residuals: Float[Tensor, "B ..."]
    labels: Real[Tensor, " B"] | None = None
    misfit: float = float("nan")
    ambiguities: tuple[str, ...] = ()


def _find_layers(module: nn.Module, hidden: str | None, outputs: str | None) -> tuple[str, str]:
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


def _identify_activation(
    module: nn.Module, weights: Tensor, readout: Tensor, name: str | None
) -> tuple[Activation, float]:
    """The activation and the output bias with which two layers compute what the module does."""
    rows = weights[weights.any(1).nonzero()[:_PROBE_ROWS, 0]]
    if not len(rows):
        raise ValueError("`module` must have hidden weights other than 0: its output is the same for all inputs.")
    steps = [height * rows / rows.square().sum(1, keepdim=True) for height in _PREACTIVATIONS]
    probes = torch.cat([torch.zeros_like(rows[:1]), *steps, *(-step for step in steps)])
    try:
        with torch.no_grad():
            expected = module(probes).reshape(-1)
    except RuntimeError as error:
        raise ValueError(f"`module` must take inputs of dimension {weights.shape[1]}: {error}") from error
    if len(expected) != len(probes):
        raise ValueError(f"`module` must give one output for each input, got {len(expected) / len(probes):g}.")
    tolerance = torch.finfo(weights.dtype).eps ** 0.75 * max(1.0, float(expected.abs().max()))
    heights, closest, fitting = probes @ weights.mT, float("inf"), []
    for candidate in [activation(name)] if name else ACTIVATIONS.values():
        values = candidate(heights) @ readout
        bias = float(expected[0] - values[0])
        distance = float((expected - values - bias).abs().max())
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
