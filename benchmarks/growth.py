"""How time and memory grow, ours beside the straightforward ways, for one algorithm of each paper.

`python benchmarks/growth.py [--record]`. Inputs and straightforward sides are those of the chapters' benchmarks; every
axis checks at a small size that its methods agree. Sizes begin where the leading term shows and end where a call takes
seconds. The exit status is 1 if an exponent differs from its theory and no note says why.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import blessing
import gradient_inversion as inversion
import kkt_margin
from growing import Axis, Curve, Law, Prepared, measured, unexplained
from leakage.draws import gaussian
from leakage.inversion import moments
from leakage.models import mlp
from reproduced.papers.blessing import logistic_regression
from reproduced.papers.blessing.logistic_models import Bilevel, draw_training_sets
from reproduced.papers.kkt_margin import margin_flow
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.papers.min_norm import least_squares as least_squares_theory
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.polytopes import other_algorithms
from reproduced.papers.polytopes.subdivision import subdivide
from reproduced.papers.polytopes.theorems import he_networks
from reproduced.papers.polytopes.windows import box_corners
from reproduced.run.book import write_json
from reproduced.runtime import stream
from timing import ROOT, Disagreement, equal, one_thread, provenance, same_law
from trained_models import least_squares, linear_prediction

PATH = "book/records/growth.json"


def doubling(first: int, count: int) -> tuple[int, ...]:
    """`first` and its doubles."""
    return tuple(first * 2**power for power in range(count))


def margin_flow_dimension() -> Axis:
    rows, width, ours, theirs = 20, 200, 1000, 20

    def problem(d: int) -> tuple[TwoLayer, Tensor, Tensor]:
        return kkt_margin.explicit("growth", rows, d, width)

    def in_span(d: int) -> Prepared:
        given = problem(d)
        return lambda: margin_flow.train(*given, Descent(ours, 0.01), route="dual"), ours

    def on_weights(d: int) -> Prepared:
        given = problem(d)
        return lambda: kkt_margin.by_autograd(*given, steps=theirs, rate=0.01), theirs

    def check(d: int) -> str:
        trained = margin_flow.train(*problem(d), Descent(10, 0.01), route="dual").model
        reference = kkt_margin.by_autograd(*problem(d), steps=10, rate=0.01)
        return equal(kkt_margin.flat(trained).numpy(), kkt_margin.flat(reference).numpy())

    flat = Law(0, "n²·neurons in the span, whatever d is")
    made = Law(1, "the weights of the trained network, d·neurons, are made at the end")
    linear, both = Law(1, "n·d·neurons in each of three products"), Law(1, "weights and gradients, d·neurons")
    return Axis(
        id="kkt_margin.step.d",
        what=f"one step of margin flow, n = {rows}, {width} neurons",
        along="dimension d",
        unit="step",
        ours=Curve("coefficients of the points", in_span, doubling(125, 6), flat, made),
        theirs=(Curve("autograd on the weights", on_weights, doubling(500, 6), linear, both),),
        check=check,
        checked=50,
    )


def left_out_points() -> Axis:
    timed = 4

    def problem(n: int) -> tuple[Tensor, Tensor, float]:
        ensemble = Bilevel(n, max(1, n // 5), n, sigma_beta=10.0)
        data = draw_training_sets(ensemble, 1, generator=stream(0, "growth/left out"))
        return data.gram()[0], data.labels[0], ensemble.ridge(blessing.PENALTY)

    def without_each(gram: Tensor, labels: Tensor, ridge: float) -> Tensor:
        model = logistic_regression.fit(gram, labels, ridge=ridge)
        return logistic_regression.leave_one_out(model).without

    def without_some(gram: Tensor, labels: Tensor, ridge: float, start: Tensor) -> Tensor:
        each = (blessing.trained_without(i, gram, labels, ridge=ridge, start=start) for i in range(timed))
        return torch.stack(list(each))

    def at_once(n: int) -> Prepared:
        given = problem(n)
        return lambda: without_each(*given), 1

    def one_by_one(n: int) -> Prepared:
        gram, labels, ridge = problem(n)
        start = logistic_regression.fit(gram, labels, ridge=ridge).dual
        return lambda: without_some(gram, labels, ridge, start), timed / n

    def check(n: int) -> str:
        gram, labels, ridge = problem(n)
        model = logistic_regression.fit(gram, labels, ridge=ridge)
        ours, theirs = without_each(gram, labels, ridge)[:timed], without_some(gram, labels, ridge, model.dual)
        moved = (model.logits[:timed] - theirs).abs().max()
        return blessing.close(ours / moved, theirs / moved, 0.05, "same outputs, in units of the largest change")

    passes = "passes over n² numbers still count, and LAPACK makes more operations a second of a larger matrix"
    held = (
        "the C library gives back at once only what is larger than 32 MiB: seven matrices are held until then, "
        "five from there on, and five at every size above 300 if it is told to give back all"
    )
    square = "Gram matrix and factor, n²"
    cubic = Law(3, "n³ for each Newton step, and once for all points that are left out", passes)
    return Axis(
        id="blessing.left_out.n",
        what="every point left out once",
        along="points n",
        unit="training set",
        ours=Curve("one fit", at_once, doubling(150, 5), cubic, Law(2, square, held)),
        theirs=(
            Curve(
                f"n fits, each from the full one ({timed} timed)",
                one_by_one,
                doubling(100, 5),
                Law(4, "n times n³", passes),
                Law(2, square, "small matrices hide in pages"),
            ),
        ),
        check=check,
        checked=100,
    )


def tensor_dimension() -> Axis:
    batch, width = 2, 1000

    def problem(d: int) -> tuple[inversion.Observation, Tensor]:
        inputs, seen = inversion.problem("growth", batch, d, width, activation="polynomial", bias=30.0)
        return seen, torch.linalg.qr(inputs.mT).Q

    def projected(seen: inversion.Observation, basis: Tensor) -> Tensor:
        return moments.from_outputs(seen, centre=False).tensor(basis)

    def dense(seen: inversion.Observation, basis: Tensor) -> Tensor:
        return torch.einsum("ijk,ia,jb,kc->abc", inversion.dense_tensor(seen), basis, basis, basis)

    def prepared(way: Callable[..., Tensor], d: int) -> Prepared:
        given = problem(d)
        return lambda: way(*given), 1

    return Axis(
        id="gradient_inversion.tensor.d",
        what=f"third moment in the span, m = {width} neurons",
        along="dimension d",
        unit="tensor",
        ours=Curve(
            "projected neuron by neuron",
            lambda d: prepared(projected, d),
            doubling(512, 5),
            Law(1, "m·d·B for the weights in the span", "the weights leave the cache on the way, 4 to 65 MB"),
            Law(0, "m·B² numbers"),
        ),
        theirs=(
            Curve(
                "made of d³ numbers",
                lambda d: prepared(dense, d),
                doubling(12, 5),
                Law(3, "m·d³ for the tensor", "m·d² numbers leave the cache on the way"),
                Law(2, "the pairs of coordinates of every neuron, m·d², while d is below m", "d³ numbers join them"),
                fitted=3,
            ),
        ),
        check=lambda d: equal(projected(*problem(d)).numpy(), dense(*problem(d)).numpy()),
        checked=16,
    )


def law_points() -> Axis:
    predictions, models = 20_000, 200  # that one call draws, and that are trained for a comparison of laws

    def drawn(n: int) -> Prepared:
        design, draws = Design(n=n, D=2 * n, sigma=1.0), stream(0, "growth/law")
        query = Query.from_point(gaussian((design.D,), generator=draws), design, design.D)

        def work() -> Tensor:
            return least_squares_theory.sample_outsider(design, design.D, query, trials=predictions, generator=draws)

        return work, predictions

    def trained(n: int) -> tuple[Callable[[], float], float]:
        rng, point = np.random.default_rng(0), gaussian((2 * n,), generator=stream(0, "growth/law")).numpy()
        return lambda: linear_prediction(point, 2 * n, least_squares, n=n, sigma=1.0, rng=rng), 1

    def check(n: int) -> str:
        work = trained(n)[0]
        sample = torch.tensor([work() for _ in range(models)], dtype=torch.float64)
        return same_law(sample, torch.as_tensor(drawn(n)[0]()))

    return Axis(
        id="min_norm.law.n",
        what="least squares: one prediction, p = D = 2n",
        along="points n",
        unit="prediction",
        ours=Curve(
            "the exact law",
            drawn,
            doubling(100, 6),
            Law(0, "four χ² and a Gaussian, whatever the design"),
            Law(0, f"{predictions:,} predictions at a time"),
        ),
        theirs=(
            Curve(
                "draw n × D, lstsq",
                trained,
                doubling(128, 5),
                Law(3, "n²·p for the solve", "the larger the matrix, the more operations LAPACK makes a second"),
                Law(2, "the design, n·D", "small matrices hide in pages"),
            ),
        ),
        check=check,
        checked=20,
    )


def polytopes_neurons() -> Axis:
    finer, window = 16, box_corners((-10.0, -10.0), (10.0, 10.0))

    def network(neurons: int) -> mlp.Mlp:
        return he_networks((2, neurons // 2, neurons // 2, 2), 1, generator=stream(0, "growth/cut"))[0]

    def cut(neurons: int) -> Prepared:
        given = network(neurons)
        return lambda: subdivide(given, window), 1

    def programmed(neurons: int) -> Prepared:
        given = network(neurons)
        fine = subdivide(given, window)
        middle = fine.centres[(len(fine) - 1) // 2]
        return lambda: other_algorithms.solve_programs(given, middle, window=window), 1 / len(fine)

    def painted(neurons: int) -> Prepared:
        given = network(neurons)
        side = int((finer * len(subdivide(given, window))) ** 0.5)
        return lambda: other_algorithms.number_pixels(given, window, side=side), 1

    def check(neurons: int) -> str:
        fine = subdivide(network(neurons), window)
        found = other_algorithms.compare_programs(fine, torch.arange(4))
        if not bool(found.same_edges.all()):
            raise Disagreement(f"the polytopes differ: same edges {found.same_edges.tolist()}.")
        seen = int(other_algorithms.number_pixels(network(neurons), window, side=100).max()) + 1
        return f"same edges of 4 polytopes; pixels see {seen} of {len(fine)}"

    return Axis(
        id="polytopes.cut.neurons",
        what="all polytopes in a window, two layers of N/2",
        along="neurons N",
        unit="window",
        ours=Curve(
            "cutting",
            cut,
            doubling(32, 5),
            Law(
                3,
                "N lines for each of the N² cells",
                "what each neuron costs, however few cells it meets, still counts",
            ),
            Law(
                3, "the patterns, N bits for each of the N² cells", "corners and maps, N² numbers, are more up to here"
            ),
        ),
        theirs=(
            Curve(
                "two linear programs for each edge (1 cell timed)",
                programmed,
                doubling(16, 5),
                Law(4, "2 N programs of N rows for each of the N² cells", "a call of the solver hides its rows"),
                Law(1, "the rows of one program at a time"),
            ),
            Curve(
                f"{finer} pixels for each cell, some cells",
                painted,
                doubling(16, 5),
                Law(3, "N neurons for each of the N² pixels"),
                Law(3, "N signs for each of the N² pixels", "the order of the pixels, N² numbers, counts as much"),
            ),
        ),
        check=check,
        checked=32,
    )


AXES = (margin_flow_dimension, left_out_points, tensor_dimension, law_points, polytopes_neurons)


def run(arguments: Sequence[str] | None = None, *, axes: Iterable[Callable[[], Axis]] = AXES, root: Path = ROOT) -> int:
    """Measure every axis, print its exponents, and with `--record` write them to `PATH` under `root`."""
    parser = argparse.ArgumentParser(description="Measure how the book's algorithms grow with their sizes.")
    parser.add_argument("--record", action="store_true", help=f"write {PATH}, which the book shows")
    options, rows = parser.parse_args(arguments), []
    with one_thread():
        for make in axes:
            axis = make()
            print(f"\n{axis.id}: {axis.what}, in {axis.along}; {axis.check(axis.checked)}", flush=True)
            rows.append(measured(axis))
            for curve in rows[-1]["curves"]:
                exponents = (
                    f"{cost} {curve[cost]['exponent']} ({curve[cost]['theory']})" for cost in ("time", "memory")
                )
                print(f"  {curve['side']:7}{curve['method']}: {', '.join(exponents)}", flush=True)
    if options.record:
        clock = "CPU seconds per unit, the least of several turns in several passes over the sizes"
        memory = "resident peak of the process above what it held before the call"
        write_json(root / PATH, {**provenance("Growth", clock, root=root), "memory": memory, "axes": rows})
        print(f"Recorded in {PATH}.")
    left = list(unexplained(rows))
    print("".join(f"Unexplained: {one}\n" for one in left), end="")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(run())
