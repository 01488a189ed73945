r"""A batch from the gradient of one's own module: this finds the route, or says which one is missing and why.

```python
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
gradient = torch.autograd.grad(cross_entropy(model(images), digits), model.parameters())
found = invert(model, gradient, batch=4, shape=(1, 28, 28), loss="cross_entropy", generator=torch.Generator())
found.inputs, found.labels, found.certified, found.bound
```

| First layer | Inputs | Route |
|---|---|---|
| linear with a bias | one | `ratio`: the gradient of a weight over that of the bias |
| linear with a bias, then a ReLU | several | `dead_neurons`: which neurons are dead for which input |
| linear with a bias | several | `span`: least squares through the module, within the span |
| linear without, two layers, one output | any | `recover`: as for the networks of the paper |
| linear without a bias | any | `dead_neurons` or `span`, up to what the gradient determines |

Above the first layer may be anything that treats each input by itself. Convolutions, embeddings and normalisations as
first layers have no route. The attack sees no input; `batch` is taken for true.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakage import arguments
from leakage.attacks.gradient_inversion.least_squares import certificate_threshold
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.attacks.gradient_inversion.own_modules import certificate, dead_neurons, first_layer, outputs
from leakage.attacks.gradient_inversion.own_modules.certificate import ModuleReconstruction
from leakage.attacks.gradient_inversion.own_modules.equations import ModuleEquations
from leakage.attacks.gradient_inversion.own_modules.first_layer import FirstLayer, NoRoute
from leakage.attacks.gradient_inversion.recover import recover
from leakage.models.activations import Activation
from leakage.trainers.federated import find_loss

_DRAWN = 64  # places of a try, of which the best are polished
_STARTS = 8
_STEPS = 80
_SETTLING = 20  # steps from a batch that another route found
_SPREAD = (0.3, 10.0)  # of drawn places about the point of the span nearest to 0, in its distance
_LENGTHS = (0.1, 10.0)  # of drawn inputs, where nothing tells them
_SCALE = "each (x, r) may be (s·x, r/s) with s > 0; lengths are set to 1"
_MIRROR = "an input may be (-x, -r)"


def invert(
    module: nn.Module,
    gradient: Mapping[str, Tensor] | Sequence[Tensor | None],
    *,
    batch: int,
    shape: Sequence[int] | None = None,
    loss: str | None = None,
    norm: float | None = None,
    tries: int = 6,
    generator: torch.Generator,
) -> ModuleReconstruction:
    r"""Find the batch behind the gradient of a module with a linear first layer.

    Of one input of a biased layer, for any layers and loss above it,

    $$ x = \frac{\sum_j \delta_j\, \partial L / \partial W_j}{\sum_j \delta_j^2}, \qquad
       \delta_j = \frac{\partial L}{\partial c_j}, \quad \frac{\partial L}{\partial W_j} = \delta_j\, x , $$

    the mean of the ratios of all neurons that weights them by their precision. For several inputs see `dead_neurons`,
    `module_equations` and `recover`.

    Source: for one input Phong et al. (2017), and Geiping et al. (2020), Proposition 3.1; the mean is ours.

    Args:
        module: the network that was sent; it stays as it is.
        gradient: what came back: by parameter names, or in the order of `module.parameters()` with `None` for unknown.
        batch: B, the number of inputs.
        shape: of one input; as many numbers as the first layer takes, where that is not given.
        loss: for labels: "cross_entropy", or for one output a name in `trainers.federated.LOSSES`.
        norm: the length of all inputs, for a layer without a bias; with one, the gradient tells it.
        tries: how often `span` starts, from eight places each time.
        generator: for probes, sketches and starts.

    Returns:
        The batch in float64, with `bound` and `certified`; where no try is certified, the one of the least misfit.

    Raises:
        TypeError: if `gradient` has something else than tensors.
        ValueError: if an argument is none of the above, the gradient does not fit the module, is not finite or zero, or
            has a rank below B. Without a route it is a `NoRoute`, which says what was seen.
    """
    arguments.count("batch", batch, least=1)
    arguments.count("tries", tries, least=1)
    if norm is not None:
        arguments.number("norm", norm, above=0)
    known = first_layer.named(module, gradient)
    # Layers that draw, as dropout does, take from PyTorch's own generator: it is put back.
    devices = {part.device for part in module.parameters() if part.device.type == "cuda"}
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        if next(module.parameters(recurse=False), None) is not None and not isinstance(module, nn.Linear):
            module, known = _in_layers(module, known, batch, loss)
        first = first_layer.of_module(module, known, shape=shape, generator=generator)
        if loss is not None:
            outputs.check(loss, width=first.outputs(torch.zeros_like(first.layer.weight[:1])).shape[1])
        if first.biased and norm is not None:
            raise ValueError(f"`norm` must be None for {first.name!r}, whose bias tells the lengths; got {norm!r}.")
        if not bool(first.rows.any()):
            raise ValueError(f"`gradient` must not be zero in {first.name!r}: all of its neurons are dead.")
        if first.biased and batch == 1:
            return _of_one(first, loss, generator)
        if not first.deterministic(generator=generator):
            raise NoRoute(
                f"`module` must treat inputs one by one and without chance for a batch of {batch}; call .eval(), if the"
                f" gradient was taken so. Seen: {first_layer.described(module)}."
            )
        return _of_several(module, known, first, batch, loss, norm, tries, generator)


def _of_one(first: FirstLayer, loss: str | None, generator: torch.Generator) -> ModuleReconstruction:
    """The route of a single input of a biased layer."""
    slopes, rows = first.rows[:, -1], first.rows[:, :-1]
    if not bool(slopes.any()):
        raise ValueError(f"`gradient` must not be zero in the bias of {first.name!r}, beside that of its weights.")
    inputs = (slopes @ rows / slopes.square().sum()).unsqueeze(0)
    misfit, bound = certificate.of_one(first, inputs)
    residuals, seen = torch.full_like(first.outputs(inputs), math.nan), ()
    if first.deterministic(generator=generator):
        residuals = outputs.of_one(first, inputs)
        if bool(residuals.isfinite().all()):
            misfit = max(misfit, certificate.explained(first, inputs, residuals))
    labels, seen = outputs.labels(first, inputs, residuals, loss, batch=1)
    holds = certificate.holds(first, inputs, misfit, bound)
    return ModuleReconstruction(inputs, residuals, labels, misfit, seen, route="ratio", bound=bound, certified=holds)


def _of_several(
    module: nn.Module,
    gradient: Mapping[str, Tensor],
    first: FirstLayer,
    batch: int,
    loss: str | None,
    norm: float | None,
    tries: int,
    generator: torch.Generator,
) -> ModuleReconstruction:
    """The other routes, one after another, until one is certified."""
    equations = ModuleEquations.from_first_layer(first, batch=batch, generator=generator)
    enough = certificate_threshold(first.precision)
    doubts: tuple[str, ...] = ()
    unknowns, misfit, route = None, math.inf, "span"
    if not first.biased and (guess := _as_in_the_paper(module, gradient, batch, loss, norm, generator)) is not None:
        route = "recover"
        unknowns, misfit = _settled(equations, guess, enough)
    elif batch <= dead_neurons.MOST_INPUTS and first.rectified(generator=generator):
        guess = dead_neurons.separate_inputs(equations, generator=generator)
        if guess is not None:
            route = "dead_neurons"
            unknowns, misfit = _settled(equations, guess * (1.0 if first.biased or norm is None else norm), enough)
    for _ in range(tries):
        if misfit < enough:
            break
        starts, misfits = equations.fitted(_drawn(equations, norm, generator))
        kept = misfits.nan_to_num(torch.inf).argsort()[:_STARTS]
        ends, reached = equations.polished(starts[kept], enough=enough / 10, steps=_STEPS)
        if reached < misfit:
            unknowns, misfit, route = ends, reached, "span"
    if unknowns is None:
        raise NoRoute(
            f"`gradient` must be near to that of some batch of {batch}, but no start led anywhere; seen:"
            f" {first_layer.described(module)}."
        )
    inputs, residuals = equations.inputs(unknowns), equations.residuals(unknowns)
    bound = certificate.of_several(equations, unknowns, lengths=norm is not None)
    misfit = max(misfit, certificate.explained(first, inputs, residuals))
    if not first.biased:
        inputs, residuals, doubts = _undetermined(first, inputs, residuals, loss, norm, enough)
    # Labels rest on outputs, and these on lengths.
    known = None if _SCALE in doubts else loss
    labels, words = outputs.labels(first, inputs, residuals, known, batch=batch)
    holds = certificate.holds(first, inputs, misfit, bound) and not doubts
    return ModuleReconstruction(
        inputs, residuals, labels, misfit, doubts + words, route=route, bound=bound, certified=holds
    )


def _settled(equations: ModuleEquations, inputs: Tensor, enough: float) -> tuple[Tensor, float]:
    """A batch that another route found, up to rounding."""
    start = equations.starting(inputs)
    return equations.polished(start.unsqueeze(0), enough=enough / 10, steps=_SETTLING)


def _as_in_the_paper(
    module: nn.Module,
    gradient: Mapping[str, Tensor],
    batch: int,
    loss: str | None,
    norm: float | None,
    generator: torch.Generator,
) -> Float[Tensor, "B d"] | None:
    """What `recover` finds for two layers without a hidden bias and with one output; `None` for other modules."""
    try:
        seen = Observation.from_module(module, gradient, batch=batch, loss=loss or "half_sum")
    except ValueError:
        return None
    kinked = seen.activation.degree == 1 and not seen.activation.smooth
    try:
        found = recover(seen, batch=batch, norm=1.0 if kinked and norm is None else norm, generator=generator)
    except ValueError:
        return None
    return found.inputs.double()


class _Entrywise(nn.Module):
    """An activation as a layer."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        return self.activation(inputs)


def _in_layers(
    module: nn.Module, gradient: Mapping[str, Tensor], batch: int, loss: str | None
) -> tuple[nn.Module, dict[str, Tensor]]:
    """The two layers of a module that holds them as bare parameters, such as a `models.clients.Client`."""
    loss = loss or "half_sum"
    try:
        seen = Observation.from_module(module, gradient, batch=batch, loss=loss)
    except ValueError as error:
        raise NoRoute(f"`module` must begin with nn.Linear, or be of two layers with one output: {error}") from error
    assert seen.readout is not None  # `from_module` gives it
    m, d = seen.weights.shape
    layers = nn.Sequential(nn.Linear(d, m, bias=False), _Entrywise(seen.activation), nn.Linear(m, 1)).to(seen.weights)
    parts = {"0.weight": seen.weights, "2.weight": seen.readout.unsqueeze(0)}
    layers.load_state_dict({**parts, "2.bias": seen.weights.new_tensor([seen.bias])})
    scale = find_loss(loss).scale(batch)
    found = {}
    if seen.hidden is not None:
        found["0.weight"] = scale * m * seen.readout.unsqueeze(-1) * seen.hidden
    if seen.outputs is not None:
        found["2.weight"] = scale * seen.outputs.unsqueeze(0)
    return layers, found


def _drawn(equations: ModuleEquations, norm: float | None, generator: torch.Generator) -> Float[Tensor, "s B f"]:
    """Places in the span, spread over a range of lengths unless the length is known."""
    like, width = equations.basis, equations.directions.shape[1]
    drawn = torch.randn((_DRAWN, equations.batch, width), generator=generator, dtype=like.dtype, device=like.device)
    if norm is not None:
        return norm * torch.nn.functional.normalize(drawn, dim=-1)
    low, high = _SPREAD if equations.first.biased else _LENGTHS
    lengths = torch.logspace(math.log10(low), math.log10(high), _DRAWN, dtype=like.dtype, device=like.device)
    if equations.first.biased:
        lengths = lengths * equations.origin.norm()
    return lengths[:, None, None] * drawn


def _undetermined(
    first: FirstLayer, inputs: Tensor, residuals: Tensor, loss: str | None, norm: float | None, enough: float
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """A batch of a layer without a bias with lengths that were chosen, and in words what its gradient leaves open."""
    doubts = []
    sizes = inputs.norm(dim=-1, keepdim=True)
    if certificate.explained(first, 2 * inputs, residuals / 2) < enough:
        factor = (1.0 if norm is None else norm) / sizes
        inputs, residuals = inputs * factor, residuals / factor
        if norm is None:
            doubts.append(_SCALE)
    for index in range(len(inputs)):
        turned = torch.ones_like(sizes)
        turned[index] = -1.0
        both = [turned * residuals, residuals]
        same = [part for part in both if certificate.explained(first, turned * inputs, part) < enough]
        if not same:
            continue
        signs = outputs.signs(residuals, loss)
        if signs is None:
            doubts.append(_MIRROR)
            break
        if float(signs[index]) < 0:
            inputs, residuals = turned * inputs, same[0]
    return inputs, residuals, tuple(doubts)
