"""Chapter gradient_inversion: a tensor in the span, the span by a sketch, and the attack against gradient matching.

`python benchmarks/gradient_inversion.py [--record]`. As in `min_norm`, every comparison first checks in the same run
that both sides find the same thing, then times them in turns (`timing`). The exit status is 1 if a promise was broken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leakage.attacks.gradient_inversion import moments, span
from leakage.attacks.gradient_inversion.matching import match
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction
from leakage.attacks.gradient_inversion.recover import recover
from leakage.data.gaussians import gaussian, sphere
from leakage.metrics.reconstruction import match_error
from leakage.models.clients import Client
from leakage.runtime import stream
from leakage.trainers.federated import batch_gradient
from timing import Benchmark, Case, Disagreement, Needed, Side, equal

FOUND = 1e-6  # the error of a reconstruction that counts as a success, for both sides, where inputs have norm 1
DESCENTS = 20  # after which gradient matching has failed


@dataclass(frozen=True)
class Sizes:
    """How large everything is: the paper's figures, or small for a test.

    Attributes:
        tensor: inputs, dimension and neurons of the tensor that is projected.
        repeats: projections that are timed together, each of them being short.
        span: inputs, dimension and neurons of the row space.
        matching: inputs, dimension and neurons of each batch that both attacks find.
        batches: how many of these.
        images: the same for one batch of the size of images, which takes gradient matching long: 3 turns at most.
        rounds: turns.
    """

    tensor: tuple[int, int, int]
    repeats: int
    span: tuple[int, int, int]
    matching: tuple[int, int, int]
    batches: int
    images: tuple[int, int, int]
    rounds: int


PAPER = Sizes(
    tensor=(2, 80, 5000),
    repeats=20,
    span=(4, 784, 8000),
    matching=(2, 50, 500),
    batches=5,
    images=(2, 784, 2000),
    rounds=5,
)
NEEDED = {
    "tensor": Needed(ratio=200.0),
    "span": Needed(ratio=10.0),
    "matching": Needed(ratio=5.0),
    "images": Needed(ratio=5.0),
}


def cases(sizes: Sizes) -> Iterator[Case]:
    """All comparisons."""
    yield tensor(sizes)
    yield row_space(sizes)
    yield attack("matching", sizes.matching, sizes.batches, sizes.rounds)
    yield attack("images", sizes.images, 1, min(3, sizes.rounds))


def tensor(sizes: Sizes) -> Case:
    _, dimension, width = sizes.tensor
    inputs, observation = problem("tensor", *sizes.tensor, activation="polynomial", bias=30.0)
    basis = torch.linalg.qr(inputs.mT).Q

    def ours() -> Tensor:
        return moments.of_outputs(observation, centre=False).tensor(basis)

    def theirs() -> Tensor:
        dense = dense_tensor(observation)
        return torch.einsum("ijk,ia,jb,kc->abc", dense, basis, basis, basis)

    return Case(
        id="tensor",
        what=f"third moment in the span, d = {dimension}, {width:,} neurons",
        unit="tensor",
        ours=Side("projected neuron by neuron", repeated(ours, sizes.repeats), sizes.repeats),
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
        return span.of_rows(rows, generator=stream(0, "benchmark/sketch")).basis

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
        found = match(seen, batch=batch, scale=scale, generator=draws)
        if found.residual < FOUND:
            return found
    raise Disagreement(f"gradient matching fails {DESCENTS} times in a row.")


# ── small pieces ────────────────────────────────────────────────────────────────────────────────────────────────────


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


def repeated(work: Callable[[], object], times: int) -> Callable[[], None]:
    """`work`, so many times."""

    def all_of_it() -> None:
        for _ in range(times):
            work()

    return all_of_it


BENCHMARK = Benchmark(
    chapter="gradient_inversion",
    title="Batches from gradients",
    description="Time the attack on batch gradients and its parts against the straightforward ways.",
    cases=cases,
    paper=PAPER,
    needed=NEEDED,
)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
