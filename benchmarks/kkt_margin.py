"""Chapter kkt_margin: training in the span of the points, and exact optima, against the loops they replace.

`python benchmarks/kkt_margin.py [--record]`. The straightforward side is `by_autograd`, full-batch gradient descent on
the weights, where nothing else is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import softplus

from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import margin_flow, max_margin, mixtures, two_layer
from reproduced.papers.kkt_margin.line_problems import draw_problem
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.papers.kkt_margin.trained_networks import fresh_outputs, train_on_gaussians
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import begin, stream
from timing import Benchmark, Case, Disagreement, Side, equal, same_law

ABOVE = 0.05  # by which share the median trained network may exceed the least norm


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    rows: int = 20  # n
    rate: float = 0.01  # η of plain gradient descent
    # Dimension and width of the step that is timed, and how many steps on our side and on theirs.
    wide: tuple[int, int, int, int] = (1000, 10_000, 1000, 20)
    # Dimension and width of the largest networks, how many there are, and their steps.
    far: tuple[int, int, int, int] = (10**6, 300, 5, 1500)
    fresh: int = 5000  # fresh points that each of them is asked about
    near: tuple[int, int] = (20_000, 20)  # the dimension that the other side is projected from, and its steps there
    # Networks, dimension, width and steps for the comparison of laws.
    checked: tuple[int, int, int, int] = (1000, 60, 50, 300)
    problems: int = 8  # problems on the line, each of four points
    neurons: tuple[int, int] = (500, 8000)  # width and steps of the networks trained on them
    rounds: int = 5  # turns


PROMISED = {"step": 40.0, "far": 2e3, "optimum": 20.0}


def cases(sizes: Sizes) -> Iterator[Case]:
    yield step(sizes)
    yield far(sizes)
    yield optima(sizes)


def by_autograd(model: TwoLayer, points: Tensor, labels: Tensor, *, steps: int, rate: float) -> TwoLayer:
    """Full-batch gradient descent on the mean logistic loss, as one writes it; leading dimensions are networks."""
    parameters = [part.clone().requires_grad_() for part in (model.weights, model.biases, model.outputs)]
    for _ in range(steps):
        w, b, v = parameters
        hidden = torch.relu(points @ w.mT + b.unsqueeze(-2))
        loss = softplus(-labels * (hidden @ v.unsqueeze(-1)).squeeze(-1)).mean(-1).sum()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for part, gradient in zip(parameters, gradients, strict=True):
                part.sub_(gradient, alpha=rate)
    return TwoLayer(*(part.detach() for part in parameters))


def step(sizes: Sizes) -> Case:
    dimension, width, ours, theirs = sizes.wide
    exact = explicit("step", sizes.rows, dimension, width)
    points, labels = (part.float() for part in exact[1:])
    start = TwoLayer(*(part.float() for part in parts(exact[0])))

    def check() -> str:
        trained = margin_flow.train(*exact, Descent(theirs, sizes.rate)).model
        reference = by_autograd(*exact, steps=theirs, rate=sizes.rate)
        return equal(flat(trained).numpy(), flat(reference).numpy())

    return Case(
        id="step",
        what=f"one step, d = {dimension:,}, {width:,} neurons, n = {sizes.rows}",
        unit="step",
        ours=Side(
            "coefficients of the points",
            partial(margin_flow.train, start, points, labels, Descent(ours, sizes.rate)),
            ours,
        ),
        theirs=Side(
            "autograd on the weights",
            partial(by_autograd, start, points, labels, steps=theirs, rate=sizes.rate),
            theirs,
        ),
        check=check,
        rounds=sizes.rounds,
    )


def far(sizes: Sizes) -> Case:
    dimension, width, networks, steps = sizes.far
    near, few = sizes.near
    problem = explicit("far", sizes.rows, near, width, dtype=torch.float32)

    size = dict(rows=sizes.rows, width=width, fresh=sizes.fresh, runs=networks)
    ours = partial(train_on_gaussians, dimension, descent=Descent(steps), run=begin(device="cpu"), **size)
    return Case(
        id="far",
        what=f"{networks} networks in d = {dimension:,}",
        unit=f"{networks} networks",
        ours=Side(f"{steps:,} loss-normalised steps in the span, {sizes.fresh:,} fresh points", ours),
        theirs=Side(
            f"projected from d = {near:,}: {steps:,} plain steps by autograd, no fresh points",
            partial(by_autograd, *problem, steps=few, rate=sizes.rate),
            few * near / (steps * dimension * networks),
        ),
        check=lambda: same_answers(sizes),
        rounds=sizes.rounds,
    )


def same_answers(sizes: Sizes) -> str:
    """Evidence that networks trained in the span answer fresh points as those trained on explicit points do."""
    networks, dimension, width, steps = sizes.checked
    draws, rate = stream(0, "benchmark/checked"), 10 * sizes.rate
    sample = mixtures.draw_sample(
        "mixture", rows=sizes.rows, fresh=1, dimension=dimension, runs=networks, generator=draws
    )
    start = two_layer.initial((networks,), width, sample.train.shape[-1], generator=draws)
    model = margin_flow.train(start, sample.train, sample.labels, Descent(steps, rate)).model
    full, points, labels = explicit("checked", sizes.rows + 1, dimension, width, batch=(networks,))
    reference = by_autograd(full, points[:, :-1], labels[:, :-1], steps=steps, rate=rate)
    return same_law(reference(points[:, -1:]).flatten(), fresh_outputs(model, sample, draws))


def optima(sizes: Sizes) -> Case:
    draws, (width, steps) = stream(0, "benchmark/optima"), sizes.neurons
    problems = [draw_problem("pairs", count=4, generator=draws) for _ in range(sizes.problems)]
    points, labels = (torch.stack(side) for side in zip(*problems, strict=True))
    start = two_layer.initial((sizes.problems,), width, 1, generator=draws)

    theirs = partial(margin_flow.train, start, points.unsqueeze(-1), labels, Descent(steps))

    def ours() -> list[max_margin.Optimum]:
        return [max_margin.optimum_on_line(*problem) for problem in problems]

    def check() -> str:
        trained, least = theirs(), torch.stack([found.value for found in ours()])
        excess = trained.model.squared_norm() / 2 / trained.margin / least - 1
        if not float(excess.min()) > -1e-6 or not float(excess.median()) < ABOVE:
            raise Disagreement(f"trained networks exceed the least norm by {excess.tolist()}.")
        return (
            f"same optimum: training ends {excess.min():.2%} to {excess.max():.2%} above, median {excess.median():.2%}"
        )

    return Case(
        id="optimum",
        what="least norm for four points on the line",
        unit="problem",
        ours=Side("convex program over kinks, to 1e-6", ours, sizes.problems),
        theirs=Side(f"{width} neurons, {steps:,} loss-normalised steps", theirs, sizes.problems),
        check=check,
        rounds=sizes.rounds,
    )


def explicit(
    id: str, rows: int, dimension: int, width: int, *, batch: tuple[int, ...] = (), dtype: torch.dtype = DTYPE
) -> tuple[TwoLayer, Tensor, Tensor]:
    """Initial networks, and points of the mixture with their labels, in all coordinates."""
    draws = stream(0, f"benchmark/{id}")
    labels = 2.0 * torch.randint(2, (*batch, rows), generator=draws).to(dtype) - 1
    points = torch.randn((*batch, rows, dimension), generator=draws, dtype=dtype)
    points[..., 0] += labels
    start = two_layer.initial(batch, width, dimension, generator=draws)
    return TwoLayer(*(part.to(dtype) for part in parts(start))), points, labels


def parts(model: TwoLayer) -> tuple[Tensor, Tensor, Tensor]:
    return model.weights, model.biases, model.outputs


def flat(model: TwoLayer) -> Tensor:
    """θ as one vector."""
    return torch.cat([part.flatten() for part in parts(model)])


BENCHMARK = Benchmark("kkt_margin", "On the margin", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
