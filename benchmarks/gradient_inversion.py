"""Chapter gradient_inversion: a tensor in the span, the span by a sketch, and the attack against gradient matching.

`python benchmarks/gradient_inversion.py [--record]`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion import moments, span
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.own_modules.invert import invert
from leakage.inversion.reconstruction import match_error
from leakage.inversion.recover import recover
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.gradient_matching import match_gradient
from reproduced.runtime import stream
from timing import Benchmark, Case, Disagreement, Side, equal

FOUND = 1e-6  # the error of a reconstruction that counts as a success, for both sides, where inputs have norm 1
NEAR = 0.05  # the error in each coordinate of a Gaussian input that counts as one for signed Adam, which ends in steps
DESCENTS = 20  # after which gradient matching has failed


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    tensor: tuple[int, int, int] = (2, 80, 5000)  # inputs, dimension and neurons of the tensor that is projected
    repeats: int = 20  # projections that are timed together, each of them being short
    span: tuple[int, int, int] = (4, 784, 8000)  # inputs, dimension and neurons of the row space
    matching: tuple[int, int, int] = (2, 50, 500)  # inputs, dimension and neurons of each batch that both attacks find
    batches: int = 5  # how many of these
    # The same for one batch of the size of images, which takes gradient matching long: 3 turns at most.
    images: tuple[int, int, int] = (2, 784, 2000)
    # Sizes of the biased tanh network with the cross-entropy whose gradient both attacks invert.
    layers: tuple[int, int, int] = (64, 300, 10)
    own: tuple[int, ...] = (1, 4)  # how many inputs a batch of it has
    steps: int = 4000  # of signed Adam, for each of these
    rounds: int = 5  # turns


PROMISED = {"tensor": 200.0, "span": 10.0, "matching": 5.0, "images": 5.0, "own.1": 100.0, "own.4": 2.0}


def cases(sizes: Sizes) -> Iterator[Case]:
    yield tensor(sizes)
    yield row_space(sizes)
    yield attack("matching", sizes.matching, sizes.batches, sizes.rounds)
    yield attack("images", sizes.images, 1, min(3, sizes.rounds))
    for batch in sizes.own:
        yield own_module(batch, sizes)


def tensor(sizes: Sizes) -> Case:
    _, dimension, width = sizes.tensor
    inputs, observation = problem("tensor", *sizes.tensor, activation="polynomial", bias=30.0)
    basis = torch.linalg.qr(inputs.mT).Q

    def ours() -> Tensor:
        return moments.from_outputs(observation, centre=False).tensor(basis)

    def theirs() -> Tensor:
        dense = dense_tensor(observation)
        return torch.einsum("ijk,ia,jb,kc->abc", dense, basis, basis, basis)

    return Case(
        id="tensor",
        what=f"third moment in the span, d = {dimension}, {width:,} neurons",
        unit="tensor",
        ours=Side("projected neuron by neuron", ours, calls=sizes.repeats),
        theirs=Side("made of d³ numbers, then projected", theirs),
        check=lambda: equal(ours().numpy(), theirs().numpy()),
        rounds=sizes.rounds,
    )


def dense_tensor(observation: Observation) -> Tensor:
    r"""$\frac1m \sum_j g_j H_3(w_j)$ in all coordinates, as the paper writes it."""
    w, g = observation.weights, observation.outputs
    assert g is not None
    dimension, eye = w.shape[1], torch.eye(w.shape[1], dtype=w.dtype)
    pairs = (w.unsqueeze(2) * w.unsqueeze(1)).flatten(1)
    cubes = ((g.unsqueeze(1) * w).mT @ pairs).view(dimension, dimension, dimension) / len(w)
    mean = w.mT @ g / len(w)
    return cubes - sum(torch.einsum(f"{a}{b},{c}->ijk", eye, mean) for a, b, c in ("ijk", "ikj", "jki"))


def row_space(sizes: Sizes) -> Case:
    batch, dimension, width = sizes.span
    _, observation = problem("span", *sizes.span, activation="tanh", bias=3.0)
    rows = observation.hidden
    assert rows is not None

    def ours() -> Tensor:
        return span.from_rows(rows, generator=stream(0, "benchmark/sketch")).basis

    def theirs() -> Tensor:
        _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
        rank = int((sizes > max(rows.shape) * torch.finfo(rows.dtype).eps * sizes[0]).sum())
        return directions[:rank].mT

    return Case(
        id="span",
        what=f"the span of {batch} inputs, d = {dimension}, {width:,} neurons",
        unit="span",
        ours=Side("a sketch that reads off the rank", ours),
        theirs=Side("singular value decomposition", theirs),
        check=lambda: equal(*((basis @ basis.mT).numpy() for basis in (ours(), theirs()))),
        rounds=sizes.rounds,
    )


def attack(id: str, size: tuple[int, int, int], batches: int, rounds: int) -> Case:
    batch, dimension, width = size
    problems = [problem(f"{id} {number}", *size, activation="tanh", bias=0.0) for number in range(batches)]

    def ours() -> list[Reconstruction]:
        draws = stream(0, "benchmark/recover")
        return [recover(seen, batch=batch, norm=1.0, generator=draws) for _, seen in problems]

    def theirs() -> list[Reconstruction]:
        draws = stream(0, "benchmark/match")
        return [matched(seen, batch, draws) for _, seen in problems]

    def check() -> str:
        errors = [
            [match_error(found.inputs, truth, signs=False) for found, (truth, _) in zip(side(), problems, strict=True)]
            for side in (ours, theirs)
        ]
        if not max(map(max, errors)) < FOUND:
            raise Disagreement(f"not every batch is found: errors up to sign are {errors[0]} and {errors[1]}.")
        return f"same batches, up to sign: errors up to {max(errors[0]):.0e} against {max(errors[1]):.0e}"

    return Case(
        id=id,
        what=f"{batch} inputs, d = {dimension}, {width:,} neurons, tanh",
        unit="batch",
        ours=Side("span, tensor and least squares", ours, batches),
        theirs=Side("gradient matching by L-BFGS until it succeeds", theirs, batches),
        check=check,
        rounds=rounds,
    )


def matched(seen: Observation, batch: int, draws: torch.Generator) -> Reconstruction:
    """The first descent of gradient matching that explains the gradient, from dummies of the inputs' own size."""
    scale = seen.weights.shape[1] ** -0.5
    for _ in range(DESCENTS):
        found = match_gradient(seen, batch=batch, scale=scale, generator=draws)
        if found.misfit < FOUND:
            return found
    raise Disagreement(f"gradient matching fails {DESCENTS} times in a row.")


def own_module(batch: int, sizes: Sizes) -> Case:
    """A network as PyTorch makes it, with biases, classes and cross-entropy; only the other side has the labels."""
    module, inputs, labels, gradient = ordinary(batch, sizes.layers)

    def ours() -> Tensor:
        return invert(module, gradient, batch=batch, generator=stream(0, "benchmark/invert")).inputs

    def theirs() -> Tensor:
        return by_signed_adam(module, labels, gradient, steps=sizes.steps, draws=stream(0, "benchmark/adam"))

    def check() -> str:
        errors = [match_error(side(), inputs) for side in (ours, theirs)]
        if not (errors[0] < FOUND and errors[1] < NEAR * sizes.layers[0] ** 0.5):
            raise Disagreement(f"not every batch is found: errors are {errors[0]:.1g} and {errors[1]:.1g}.")
        return f"same batch: errors {errors[0]:.0e} against {errors[1]:.0e}"

    widths = "-".join(map(str, sizes.layers))
    return Case(
        id=f"own.{batch}",
        what=f"{batch} input{'s' * (batch > 1)}, biased {widths} tanh, cross-entropy",
        unit="batch",
        ours=Side("ratio of gradients" if batch == 1 else "least squares in the span, labels unknown", ours),
        theirs=Side(f"cosine distance, {sizes.steps:,} steps of signed Adam, labels known", theirs),
        check=check,
        rounds=min(3, sizes.rounds),
    )


def by_signed_adam(
    module: nn.Module, labels: Tensor, gradient: dict[str, Tensor], *, steps: int, draws: torch.Generator
) -> Tensor:
    """Geiping et al. (2020) without total variation, written again: Adam on signs of the cosine distance's gradient.

    The rate is 0.1, a tenth of it after 3/8, 5/8 and 7/8 of the steps, as in their code and in breaching.
    """
    parameters = [part.requires_grad_() for part in module.parameters()]
    target = torch.cat([part.flatten() for part in gradient.values()])
    first = parameters[0]
    inputs = torch.randn((len(labels), first.shape[1]), generator=draws, dtype=first.dtype).requires_grad_()
    optimiser = torch.optim.Adam([inputs], lr=0.1)
    turns = [steps * part // 8 for part in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, turns, gamma=0.1)
    for _ in range(steps):
        loss = cross_entropy(module(inputs), labels)
        found = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters, create_graph=True)])
        distance = 1 - torch.dot(found, target) / (found.norm() * target.norm())
        inputs.grad = torch.autograd.grad(distance, inputs)[0].sign()
        optimiser.step()
        schedule.step()
    return inputs.detach()


def problem(
    id: str, batch: int, dimension: int, width: int, *, activation: str, bias: float
) -> tuple[Tensor, Observation]:
    """A batch on the sphere with labels of ±1, and what the server sees of it."""
    inputs = sphere(batch, dimension, generator=stream(0, f"benchmark/{id}/inputs"))
    labels = 1.0 - 2.0 * (torch.arange(batch) % 2).to(inputs)
    weights = gaussian((width, dimension), generator=stream(0, f"benchmark/{id}/weights"))
    module = Client(weights, activation=activation, bias=bias)
    gradient = batch_gradient(module, inputs, labels, loss="half_sum")
    return inputs, Observation.from_module(module, gradient, batch=batch, loss="half_sum")


def ordinary(batch: int, sizes: tuple[int, int, int]) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor]]:
    """A biased two-layer network with PyTorch's law of weights, a Gaussian batch, its labels and its gradient."""
    draws = stream(0, f"benchmark/own {batch}")
    module = nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2])).to(DTYPE)
    for layer, inputs in ((module[0], sizes[0]), (module[2], sizes[1])):
        for part in layer.parameters():
            part.data = inputs**-0.5 * (2 * torch.rand(part.shape, generator=draws, dtype=DTYPE) - 1)
    inputs = gaussian((batch, sizes[0]), generator=draws)
    labels = torch.randperm(sizes[2], generator=draws)[:batch]
    loss = cross_entropy(module(inputs), labels)
    names, parts = zip(*module.named_parameters(), strict=True)
    return module, inputs, labels, dict(zip(names, torch.autograd.grad(loss, parts), strict=True))


BENCHMARK = Benchmark("gradient_inversion", "One gradient, whole batch", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
