r"""Through a stack of layers that keep their input: what the top of a deep network says about the bottom.

The server sends a `models.clients.DeepStack`. Its two upper layers are a two-layer client whose inputs are *features*
of the true ones, so that any attack on two layers finds the features, and `invert_features` takes them back. All
inverses are by bisection to the last digit, entry by entry, and are NaN where no input has such a feature.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import arguments
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.models.activations import Activation
from leakage.models.clients import STACKS, DeepStack, stack_features, stack_gain

_DOUBLINGS = 10  # of the bracket: an entry beyond 1000 is no input
_HALVINGS = 64  # of the bracket: to 1e-19 for entries below 1
_SAME_LENGTH = 0.25  # exponent of the rounding unit: 1e-4 in float64; the edge of a range is 5 % and more off


def effective_observation(module: DeepStack, gradient: Mapping[str, Tensor], *, batch: int, loss: str) -> Observation:
    r"""What a two-layer client would have returned for the features of the batch.

    The top layer of a paired stack has the weights $(z_j, -z_j)/\text{gain}$, so its gradient $(G_+, G_-)$ gives

    $$ G_j = \frac{G_{+,j} - G_{-,j}}{\text{gain}} = \frac1m \sum_i r_i\, \sigma'(z_j^\top u_i)\, u_i, \qquad
       u_i = \varphi(x_i) / \text{gain}, $$

    for the weights $z_j$; a plain stack needs no change.

    Source: Wang et al., Section 4 (deep networks); they treat (leaky) ReLU pairs, without the gain.

    Args:
        module: the stack that was sent.
        gradient: what came back, by parameter names; the layers below the top are not used.
        batch: the number of inputs, which the loss `mean` divides by.
        loss: a name in `trainers.federated.LOSSES`.

    Raises:
        ValueError: as `Observation.from_module` does for two layers.
    """
    top = {name.removeprefix("top."): value for name, value in gradient.items() if name.startswith("top.")}
    seen = Observation.from_module(
        module.top, top, batch=batch, loss=loss, hidden="hidden", outputs="outputs", activation=module.activation.name
    )
    if module.kind == "plain":
        return seen
    gain, half = stack_gain(module.activation, depth=module.depth), seen.weights.shape[1] // 2
    hidden = None if seen.hidden is None else (seen.hidden[:, :half] - seen.hidden[:, half:]) / gain
    return Observation(
        gain * seen.weights[:, :half], seen.activation, seen.bias, seen.outputs, hidden, seen.logistic, seen.readout
    )


def invert_features(
    features: Float[Tensor, "B d"], activation: Activation, *, depth: int, kind: str
) -> Float[Tensor, "B d"]:
    r"""The inputs whose `models.clients.stack_features` these are.

    Returns:
        $x$ with $\sigma^k(x) = u$ for a plain stack and $\varphi(x) = \text{gain} \cdot u$ for a paired one; NaN where
        u is outside the range.

    Raises:
        ValueError: if the depth or the kind is not one, the activation does not keep its input in such a stack, or the
            features are not floating-point or NaN.
    """
    arguments.real("features", features, "B d", finite=False)
    if arguments.choice("kind", kind, STACKS) == "plain" and not activation.monotone:
        raise ValueError(f"`activation` must increase for a plain stack, got {activation.name!r}: it has no inverse.")
    return _solve(lambda x: stack_features(x, activation, depth=depth, kind=kind), features)


def invert_directions(
    directions: Float[Tensor, "B d"], activation: Activation, *, depth: int, kind: str, norm: float = 1.0
) -> Float[Tensor, "B d"]:
    r"""The inputs of known norm whose features have these directions: a search for $\alpha_i > 0$ such that
    `invert_features` of $\alpha_i$ times the direction has the norm. The length of a direction does not count.

    Source: Wang et al., Section 4, for identity stacks of tanh or sigmoid. The norm grows with $\alpha$ where features
    of 0 are 0; a plain stack of another activation has several such inputs or none, and is refused.

    Returns:
        The inputs; NaN where none of this norm has such features, or an entry of it would be beyond 1000.

    Raises:
        ValueError: if the norm is not positive and finite, a direction is 0 or not finite, the features of 0 are not
            0, or as `invert_features` does.
    """
    arguments.number("norm", norm, above=0)
    arguments.real("directions", directions, "B d")
    if not bool(directions.any(-1).all()):
        raise ValueError("`directions` must not be 0: such features have no direction.")
    directions = normalize(directions / directions.abs().amax(-1, keepdim=True), dim=-1)
    if kind == "plain" and bool(activation(torch.zeros(1)).any()):
        raise ValueError(
            f"`activation` must be 0 at 0 in a plain stack, got {activation.name!r}: no single scale fits."
        )
    wanted = torch.full_like(directions[:, :1], norm)

    def norms(scales: Tensor) -> Tensor:
        inputs = invert_features(scales * directions, activation, depth=depth, kind=kind)
        return inputs.norm(dim=-1, keepdim=True).nan_to_num(torch.inf) * scales.sign()

    inputs = invert_features(_solve(norms, wanted).nan_to_num() * directions, activation, depth=depth, kind=kind)
    off = (inputs.norm(dim=-1, keepdim=True) / norm - 1).abs()
    return torch.where(off <= torch.finfo(inputs.dtype).eps ** _SAME_LENGTH, inputs, torch.nan)


def _solve(function: Callable[[Tensor], Tensor], wanted: Tensor) -> Tensor:
    """Where an increasing function takes the values wanted, entry by entry; NaN where it never does."""
    high = torch.ones_like(wanted)
    for _ in range(_DOUBLINGS):
        short = (function(high) < wanted) | (function(-high) > wanted)
        if not bool(short.any()):
            break
        high = torch.where(short, 2 * high, high)
    inside = (function(-high) <= wanted) & (wanted <= function(high))
    return torch.where(inside, _crossing(lambda x: function(x) - wanted, -high, high), torch.nan)


def _crossing(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Where an increasing function is zero, entry by entry, to the last digits.

    Source: Chandrupatla (1997): the inverse parabola through the last three points where it can be trusted, halves of
    the bracket elsewhere; a fifth of the evaluations that halves alone would take.
    """
    newest, other, older = low, high, high
    value, over, before = function(newest), function(other), function(older)
    share = torch.full_like(low, 0.5)
    for _ in range(_HALVINGS):
        point = newest + share * (other - newest)
        found = function(point)
        same = (found < 0) == (value < 0)
        older, before = torch.where(same, newest, other), torch.where(same, value, over)
        other, over = torch.where(same, other, newest), torch.where(same, over, value)
        newest, value = point, found
        best = torch.where(value.abs() < over.abs(), newest, other)
        width = (other - newest).abs()
        least = 2 * torch.finfo(low.dtype).eps * best.abs() / width.clamp_min(torch.finfo(low.dtype).tiny)
        done = (value == 0) | (least > 0.5)
        if bool(done.all()):
            break
        place, height = (newest - other) / (older - other), (value - over) / (before - over)
        trusted = (height.square() < place) & ((1 - height).square() < 1 - place) & ~done
        steep = value / (over - value) * before / (over - before)
        flat = (older - newest) / (other - newest) * value / (before - value) * over / (before - over)
        share = torch.where(trusted, steep + flat, 0.5).clamp(least.clamp_max(0.5), (1 - least).clamp_min(0.5))
    return best
