r"""A batch from the gradient of one's own module: `invert` tries the methods below, or says why none applies.

| First layer | Inputs | Route |
|---|---|---|
| linear with a bias | one | `ratio`: the gradient of a weight over that of the bias |
| linear with a bias, then a ReLU | several | `dead_neurons`: which neurons are dead for which input |
| linear with a bias | several | `span`: least squares through the module, within the span |
| linear without, two layers, one output | any | `recover`: as for the networks of the paper |
| linear without a bias | any | `dead_neurons` or `span`, up to the symmetries of the gradient |

The layers above the first may be any that treat each input by itself. Convolutions, embeddings and normalisations as
first layers have no route. A batch that explains a gradient can still differ from the one behind it. With the equations
$E = 0$ in the unknowns θ, their Jacobian J and their error e, it does to first order by at most

$$ \lVert \hat x_i - x_i \rVert \le 4\, \eta \left( \lVert (J^+)_{x_i} \rVert
   + \frac{\lVert M \rVert}{\sigma_{\min}(\Delta)} \lVert \tilde x_i \rVert \right), \qquad
   \eta = \max(\lVert e \rVert, \varepsilon), $$

with ε the rounding unit of the gradient, relative to its size; the second part is the error of the span by rounding.
The bound does not see other batches with the same gradient; known ones appear as `ambiguities`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from leakage import arguments, draws
from leakage.inversion.federated import LOSSES
from leakage.inversion.nonlinear_least_squares import certificate_threshold
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.own_modules import dead_neurons
from leakage.inversion.own_modules.equations import ModuleEquations
from leakage.inversion.own_modules.first_layer import (
    CROSS_ENTROPY,
    FirstLayer,
    NoRoute,
    describe,
    find_first_layer,
    find_labels,
    name_gradient,
    residual_signs,
    single_residual,
)
from leakage.inversion.recover import recover

_DRAWN = 64  # points of a try, from the best of which least squares starts
_STARTS = 8
_STEPS = 80
_FINAL_STEPS = 20  # from a batch that another route found
_SPREAD = (0.3, 10.0)  # of drawn points about the point of the span nearest to 0, in its distance
_UNKNOWN_LENGTHS = (0.1, 10.0)  # of drawn inputs, where the gradient does not determine them
_SCALE = "each (x, r) may be (s·x, r/s) with s > 0; lengths are set to 1"
_MIRROR = "an input may be (-x, -r)"
_SAFETY = 4.0  # of the bound to first order: 0.18 of it was the most in 304 batches certified, of 850 random modules
_LARGEST_ERROR = 1e-2  # a bound beyond this share of an input certifies nothing
_LEAST_ALIVE = 2  # neurons, as the row of a single one is explained by any input along it


@dataclass(frozen=True, eq=False, kw_only=True)
class ModuleReconstruction(Reconstruction):
    r"""A batch from a module's gradient, with an error bound.

    `residuals` are $\rho_i = \partial L / \partial f(x_i)$, a row of k numbers for each input; `labels` are classes
    (whole numbers) for the cross-entropy. All else is in float64.

    Attributes:
        route: how it was found.
        bound: no input is further than this from the true one, in its own units; infinite where nothing is known.
        certified: whether the batch explains every gradient that was given up to its rounding, the bound leaves two
            digits of every input, and no other inputs are known to have the same gradient, for the given `batch`.
    """

    route: str
    bound: float
    certified: bool


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

    For one input of a biased layer, and any layers and loss above it,

    $$ x = \frac{\sum_j \delta_j\, \partial L / \partial W_j}{\sum_j \delta_j^2}, \qquad
       \delta_j = \frac{\partial L}{\partial c_j}, \quad \frac{\partial L}{\partial W_j} = \delta_j\, x , $$

    the mean of the ratios of all neurons, weighted by their precision. For several inputs see `dead_neurons`,
    `equations` and `recover`. Where no try is certified, the batch of the least misfit is returned.

    Source: for one input Phong et al. (2017), and Geiping et al. (2020), Proposition 3.1; the mean is ours.

    Args:
        module: the network that was sent; it is not changed.
        gradient: what came back: by parameter names, or in the order of `module.parameters()` with `None` for unknown.
        batch: B, the number of inputs, which is not checked; it may exceed the number of classes.
        shape: of one input; by default one axis as long as the first layer takes.
        loss: for labels: "cross_entropy", or for one output a name in `inversion.federated.LOSSES`, such as "mse_loss".
        norm: the length of all inputs, for a layer without a bias; a bias determines it.
        tries: how often `span` starts, from eight points each time.

    Raises:
        NoRoute: a `ValueError` that says what was seen, if no method applies. Other `ValueError`s name an argument.
    """
    arguments.check_count("batch", batch, least=1)
    arguments.check_count("tries", tries, least=1)
    if norm is not None:
        arguments.check_number("norm", norm, above=0)
    known = name_gradient(module, gradient)
    # Layers that draw, as dropout does, take from PyTorch's own generator: its state is restored.
    devices = {part.device for part in module.parameters() if part.device.type == "cuda"}
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        first = find_first_layer(module, known, shape=shape, generator=generator)
        if loss is not None:
            _check_loss(loss, width=first.output_count)
        if first.biased and norm is not None:
            raise ValueError(f"`norm` must be None for {first.name!r}, whose bias determines lengths; got {norm!r}.")
        if not bool(first.rows.any()):
            raise ValueError(f"`gradient` must not be zero in {first.name!r}: all of its neurons are dead.")
        if first.biased and batch == 1:
            return _invert_one(first, loss, generator)
        if not first.is_deterministic(generator=generator):
            raise NoRoute(
                f"`module` must treat inputs one by one and without chance for a batch of {batch}; call .eval(), if the"
                " gradient was taken so: there is no route below batch normalisation or dropout in training. Seen:"
                f" {describe(module)}."
            )
        return _invert_several(module, known, first, batch, loss, norm, tries, generator)


def _check_loss(loss: str, *, width: int) -> None:
    """Raise `ValueError` unless this is a loss of so many outputs."""
    arguments.check_choice("loss", loss, (CROSS_ENTROPY, *LOSSES))
    if (loss == CROSS_ENTROPY) == (width == 1):
        rule = "one of several outputs" if width > 1 else "one of a single output"
        raise ValueError(f"`loss` must be {rule}, as the module has {width}; got {loss!r}.")


def _invert_one(first: FirstLayer, loss: str | None, generator: torch.Generator) -> ModuleReconstruction:
    """The route of a single input of a biased layer."""
    slopes, rows = first.rows[:, -1], first.rows[:, :-1]
    if not bool(slopes.any()):
        raise ValueError(f"`gradient` must not be zero in the bias of {first.name!r}, beside that of its weights.")
    inputs = (slopes @ rows / slopes.square().sum()).unsqueeze(0)
    misfit, bound = _single_bound(first, inputs)
    residuals = inputs.new_full((1, first.output_count), math.nan)
    if first.is_deterministic(generator=generator):
        residuals = single_residual(first, inputs)
        if bool(residuals.isfinite().all()):
            misfit = max(misfit, _largest_misfit(first, inputs, residuals))
    labels, words = find_labels(first, inputs, residuals, loss, batch=1)
    certified = _is_certified(first, inputs, misfit, bound)
    return ModuleReconstruction(
        inputs, residuals, labels, misfit, words, route="ratio", bound=bound, certified=certified
    )


def _invert_several(
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
    ambiguities: tuple[str, ...] = ()
    unknowns, misfit, route, guess = None, math.inf, "span", None
    if not first.biased:
        route, guess = "recover", _recover_two_layers(module, gradient, batch, loss, norm, generator)
    if guess is None and batch <= dead_neurons.MAX_BATCH and first.is_rectified(generator=generator):
        route, guess = "dead_neurons", dead_neurons.separate_inputs(equations, generator=generator)
        if guess is not None and not first.biased and norm is not None:
            guess = norm * guess
    if guess is not None:
        start = equations.start_at(guess).unsqueeze(0)
        unknowns, misfit = equations.solve(start, enough=enough / 10, steps=_FINAL_STEPS)
    for _ in range(tries):
        if misfit < enough:
            break
        starts, misfits = equations.fit_residuals(_draw_points(equations, norm, generator))
        kept = misfits.nan_to_num(torch.inf).argsort()[:_STARTS]
        ends, reached = equations.solve(starts[kept], enough=enough / 10, steps=_STEPS)
        if reached < misfit:
            unknowns, misfit, route = ends, reached, "span"
    if unknowns is None:
        raise NoRoute(
            f"`gradient` must be near to that of some batch of {batch}, but no start led anywhere; seen:"
            f" {describe(module)}."
        )
    inputs, residuals = equations.inputs(unknowns), equations.residuals(unknowns)
    bound = _error_bound(equations, unknowns, known_lengths=norm is not None)
    misfit = max(misfit, _largest_misfit(first, inputs, residuals))
    if not first.biased:
        inputs, residuals, ambiguities = _resolve_symmetries(first, inputs, residuals, loss, norm, enough)
    # Labels depend on outputs, and these on lengths.
    labels, words = find_labels(first, inputs, residuals, None if _SCALE in ambiguities else loss, batch=batch)
    certified = _is_certified(first, inputs, misfit, bound) and not ambiguities
    return ModuleReconstruction(
        inputs, residuals, labels, misfit, ambiguities + words, route=route, bound=bound, certified=certified
    )


def _recover_two_layers(
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
        length = 1.0 if seen.activation.piecewise_linear and norm is None else norm
        return recover(seen, batch=batch, norm=length, generator=generator).inputs.double()
    except ValueError:
        return None


def _draw_points(equations: ModuleEquations, norm: float | None, generator: torch.Generator) -> Float[Tensor, "s B f"]:
    """Points in the span, over a range of lengths unless the length is known."""
    like, width = equations.basis, equations.directions.shape[1]
    drawn = draws.gaussian((_DRAWN, equations.batch, width), generator=generator, like=like)
    if norm is not None:
        return norm * normalize(drawn, dim=-1)
    low, high = _SPREAD if equations.first.biased else _UNKNOWN_LENGTHS
    lengths = torch.logspace(math.log10(low), math.log10(high), _DRAWN, dtype=like.dtype, device=like.device)
    if equations.first.biased:
        lengths = lengths * equations.origin.norm()
    return lengths[:, None, None] * drawn


def _resolve_symmetries(
    first: FirstLayer, inputs: Tensor, residuals: Tensor, loss: str | None, norm: float | None, enough: float
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """A batch of a layer without a bias, with chosen lengths and signs, and the symmetries that remain, in words."""
    ambiguities = []
    sizes = inputs.norm(dim=-1, keepdim=True)
    if _largest_misfit(first, 2 * inputs, residuals / 2) < enough:
        factor = (1.0 if norm is None else norm) / sizes
        inputs, residuals = inputs * factor, residuals / factor
        if norm is None:
            ambiguities.append(_SCALE)
    for index in range(len(inputs)):
        signs = torch.ones_like(sizes)
        signs[index] = -1.0
        both = [signs * residuals, residuals]
        same = [part for part in both if _largest_misfit(first, signs * inputs, part) < enough]
        if not same:
            continue
        likely = residual_signs(residuals, loss)
        if likely is None:
            ambiguities.append(_MIRROR)
            break
        if float(likely[index]) < 0:
            inputs, residuals = signs * inputs, same[0]
    return inputs, residuals, tuple(ambiguities)


def _single_bound(first: FirstLayer, inputs: Float[Tensor, "1 d"]) -> tuple[float, float]:
    r"""Misfit and bound of a single input of a biased layer, $4\, \eta \lVert M \rVert \sqrt{1 + \lVert x \rVert^2} /
    \lVert \partial L / \partial c \rVert$."""
    rows = first.rows
    slopes = rows[:, -1]
    misfit = float((rows[:, :-1] - slopes.unsqueeze(-1) * inputs).norm() / rows.norm())
    noise = max(misfit, torch.finfo(first.precision).eps) * float(rows.norm())
    if int((slopes != 0).sum()) < min(_LEAST_ALIVE, len(rows)):
        return misfit, math.inf
    return misfit, _SAFETY * noise * math.sqrt(1 + float(inputs.square().sum())) / float(slopes.norm())


def _error_bound(equations: ModuleEquations, unknowns: Float[Tensor, " p"], *, known_lengths: bool) -> float:
    """The bound on the error of every input of a batch that solves the equations."""
    first = equations.first
    error, jacobian = equations.linearise(unknowns)
    if known_lengths:
        points = unknowns[: equations.batch**2].reshape(equations.batch, -1)
        radial = torch.block_diag(*(points / points.square().sum(1, keepdim=True)))
        jacobian = torch.cat([jacobian, pad(radial, (0, jacobian.shape[1] - radial.shape[1]))])
    if len(jacobian) < len(unknowns):
        return math.inf
    scale = jacobian.norm(dim=0)  # unknowns have different units
    if not bool((scale > 0).all() & scale.isfinite().all()):
        return math.inf
    left, sizes, right = torch.linalg.svd(jacobian / scale, full_matrices=False)
    if not float(sizes[-1]) > len(jacobian) * torch.finfo(sizes.dtype).eps * float(sizes[0]):
        return math.inf
    inverse = (right.mT / sizes) @ left.mT / scale.unsqueeze(-1)
    inputs, residuals = equations.inputs(unknowns), equations.residuals(unknowns)
    width = equations.directions.shape[1]
    blocks = inverse[: width * equations.batch].unflatten(0, (equations.batch, width))
    amplified = torch.linalg.matrix_norm(blocks, ord=2) if width else blocks.new_zeros(equations.batch)
    slopes, full = first.slopes(inputs, residuals), first.with_bias(inputs)
    misfit = float((slopes.mT @ full - first.rows).norm() / first.rows.norm())
    noise = max(misfit, float(error.norm()), torch.finfo(first.precision).eps)
    span_error = first.rows.norm() / torch.linalg.svdvals(slopes)[-1] * full.norm(dim=-1)
    return _SAFETY * noise * float((amplified + span_error).max())


def _largest_misfit(first: FirstLayer, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"]) -> float:
    """The largest relative distance, over the parameters, between their gradient and that of the batch.

    A parameter whose gradient is small beside the largest is compared with a hundredth of the largest.
    """
    simulated = first.simulate_gradient(inputs, residuals)
    largest = max(float(part.norm()) for part in first.gradient.values())
    worst = 0.0
    for name, part in first.gradient.items():
        size = max(float(part.norm()), _LARGEST_ERROR * largest)
        worst = max(worst, float((simulated[name] - part).norm()) / size)
    return worst if math.isfinite(worst) else math.inf


def _is_certified(first: FirstLayer, inputs: Float[Tensor, "B d"], misfit: float, bound: float) -> bool:
    """Whether misfit and bound certify the batch."""
    least = float(inputs.norm(dim=-1).min())
    return misfit < certificate_threshold(first.precision) and bound <= _LARGEST_ERROR * least
