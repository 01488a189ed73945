r"""The attack on a deep network whose lower layers are invertible.

The server sends an `inversion.federated.DeepStack`. Its two upper layers are a two-layer client whose inputs are
*features* of the true ones, so that any attack on two layers finds the features. `invert_features` gives the inputs
with these features, by root finding on the CPU, entry by entry; an entry is NaN where no input has such a feature.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import elementwise
from torch import Tensor
from torch.nn.functional import normalize

from leakage.inversion.activations import Activation
from leakage.inversion.federated import DeepStack, stack_features, stack_gain
from leakage.inversion.observation import Observation

_LARGEST_ENTRY = 1024.0  # of an input, and of a scale of features
_UNREACHABLE = 1e100  # stands in for the norm where no inputs exist
_NORM_TOLERANCE_EXPONENT = 0.25  # of eps, 1e-4 in float64; where no scale gives the norm, it is off by 5 % and more


def effective_observation(module: DeepStack, gradient: Mapping[str, Tensor], *, batch: int, loss: str) -> Observation:
    r"""What a two-layer client would have returned for the features of the batch.

    The top layer of a paired stack has the weights $(z_j, -z_j)/\text{gain}$, so its gradient $(G_+, G_-)$ gives

    $$ G_j = \frac{G_{+,j} - G_{-,j}}{\text{gain}} = \frac1m \sum_i r_i\, \sigma'(z_j^\top u_i)\, u_i, \qquad
       u_i = \varphi(x_i) / \text{gain}, $$

    for the weights $z_j$; a plain stack needs no change. The gradient of the layers below the top is not used, and
    `loss` is a name in `inversion.federated.LOSSES`.

    Source: Wang et al., Section 4 (deep networks); they treat (leaky) ReLU pairs, without the gain.
    """
    top = {name.removeprefix("top."): value for name, value in gradient.items() if name.startswith("top.")}
    observation = Observation.from_module(
        module.top, top, batch=batch, loss=loss, hidden="hidden", outputs="outputs", activation=module.activation.name
    )
    if module.kind == "plain":
        return observation
    gain, half = stack_gain(module.activation, depth=module.depth), observation.weights.shape[1] // 2
    hidden = observation.hidden
    if hidden is not None:
        hidden = (hidden[:, :half] - hidden[:, half:]) / gain
    return dataclasses.replace(observation, weights=gain * observation.weights[:, :half], hidden=hidden)


def invert_features(
    features: Float[Tensor, "B d"], activation: Activation, *, depth: int, kind: str
) -> Float[Tensor, "B d"]:
    r"""The inputs whose `inversion.federated.stack_features` these are.

    $x$ with $\sigma^k(x) = u$ for a plain stack and $\varphi(x) = \text{gain} \cdot u$ for a paired one; NaN where u is
    outside the range.
    """
    if kind == "plain" and not activation.monotone:
        raise ValueError(f"`activation` must increase for a plain stack, got {activation.name!r}: it has no inverse.")

    def error(points: Tensor, wanted: Tensor) -> Tensor:
        return stack_features(points.unsqueeze(0), activation, depth=depth, kind=kind).squeeze(0) - wanted

    return _find_root(error, features, low=-_LARGEST_ENTRY)


def invert_scaled_features(
    directions: Float[Tensor, "B d"], activation: Activation, *, depth: int, kind: str, norm: float = 1.0
) -> Float[Tensor, "B d"]:
    r"""The inputs of known norm whose features have these directions; the lengths of `directions` do not matter.

    Finds the $\alpha_i > 0$ for which `invert_features` of $\alpha_i$ times the direction has the norm; NaN where no
    inputs of this norm have such features, or an entry would be beyond 1024.

    Source: Wang et al., Section 4, for plain stacks of tanh or sigmoid. The norm grows with $\alpha$ where features of
    0 are 0. A plain stack with $\sigma(0) \ne 0$, so one of sigmoids, too, may have several such inputs or none, and is
    refused.
    """
    if kind == "plain" and bool(activation(torch.zeros(1)).any()):
        raise ValueError(
            f"`activation` must be 0 at 0 in a plain stack, got {activation.name!r}: no single scale fits."
        )
    directions = normalize(directions / directions.abs().amax(-1, keepdim=True), dim=-1)

    def error(scales: Tensor, rows: Tensor) -> Tensor:
        features = scales.unsqueeze(-1) * directions.cpu().double()[rows.long()]
        norms = invert_features(features, activation, depth=depth, kind=kind).norm(dim=-1)
        return norms.nan_to_num(_UNREACHABLE) - norm

    scales = _find_root(error, torch.arange(len(directions)).double(), low=0.0).to(directions)
    inputs = invert_features(scales.unsqueeze(-1) * directions, activation, depth=depth, kind=kind)
    off = (inputs.norm(dim=-1, keepdim=True) / norm - 1).abs()
    return torch.where(off <= torch.finfo(inputs.dtype).eps ** _NORM_TOLERANCE_EXPONENT, inputs, torch.nan)


def _find_root(error: Callable[[Tensor, Tensor], Tensor], parameters: Tensor, *, low: float) -> Tensor:
    """For each entry g of `parameters` the x with error(x, g) = 0, NaN where there is none; `error` increases in x."""

    def evaluate(points: np.ndarray, values: np.ndarray) -> np.ndarray:
        return error(torch.from_numpy(points), torch.from_numpy(values)).numpy()

    numbers = parameters.detach().cpu().double().flatten().numpy()
    with np.errstate(all="ignore"):
        found = elementwise.find_root(evaluate, (low, _LARGEST_ENTRY), args=(numbers,))
    return torch.from_numpy(found.x).reshape(parameters.shape).to(parameters)
