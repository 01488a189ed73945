"""Along what the cost of training grows: the algorithms of the chapters on margins, ridge and least squares.

Every axis checks at a small size that its methods agree.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import blessing
import kkt_margin
from growing import NUMBER, Axis, Curve, Law, Prepared, Work, doubling
from leakage.data.gaussians import gaussian
from leakage.models import mlp
from leakage.models.two_layer import TwoLayer
from leakage.runtime import stream
from leakage.studies.blessing.bilevel import Bilevel, fixed_points, training_sets
from leakage.theory import least_squares_law
from leakage.theory.least_squares import Design, Query
from leakage.trainers import ensembles, logistic_regression, margin_flow
from leakage.trainers.criteria import Examples
from leakage.trainers.margin_flow import Descent
from leakage.trainers.min_norm import nested_min_norm
from leakage.trainers.perceptrons import Perceptrons
from ordinary_models import by_modules
from timing import equal, same_law
from trained_models import least_squares, linear_prediction

CHECKED = 200  # models trained for one comparison of laws
PREDICTIONS = 20_000  # that one call draws
SIGMA = 1.0  # of the labels' noise


def margin_flow_dimension() -> Axis:
    rows, width, ours, theirs = 20, 200, 1000, 20

    def problem(d: int) -> tuple[TwoLayer, Tensor, Tensor]:
        return kkt_margin.explicit("growth", rows, d, width)

    return Axis(
        id="kkt_margin.step.d",
        chapter="kkt_margin",
        what=f"one step of margin flow, n = {rows}, {width} neurons",
        along="dimension d",
        unit="step",
        ours=Curve(
            "coefficients of the points",
            lambda d: flowed(problem(d), ours),
            doubling(125, 6),
            Law(0, "n²·neurons in the span, whatever d is"),
            Law(1, "the weights of the trained network, d·neurons, are made at the end"),
        ),
        theirs=(
            Curve(
                "autograd on the weights",
                lambda d: descended(problem(d), theirs),
                doubling(500, 6),
                Law(1, "n·d·neurons in each of three products"),
                Law(1, "weights and gradients, d·neurons"),
            ),
        ),
        check=lambda d: same_steps(problem(d)),
        checked=50,
        flops=Work("4 n² · neurons", lambda d: 4.0 * rows**2 * width),
        traffic=Work("48 n · neurons", lambda d: 6.0 * NUMBER * rows * width),
    )


def margin_flow_points() -> Axis:
    dimension, width, ours, theirs = 4096, 100, 50, 3

    def problem(n: int) -> tuple[TwoLayer, Tensor, Tensor]:
        return kkt_margin.explicit("growth", n, dimension, width)

    return Axis(
        id="kkt_margin.step.n",
        chapter="kkt_margin",
        what=f"one step of margin flow, d = {dimension}, {width} neurons",
        along="points n",
        unit="step",
        ours=Curve(
            "coefficients of the points",
            lambda n: flowed(problem(n), ours),
            doubling(64, 5),
            Law(
                2,
                "the Gram matrix, n², times n·neurons coefficients",
                "passes over the coefficients and the weights made at the end, both linear in n, still count",
            ),
            Law(1, "the points with a coordinate more, n·d, beside the Gram matrix"),
        ),
        theirs=(
            Curve(
                "autograd on the weights",
                lambda n: descended(problem(n), theirs),
                doubling(64, 5),
                Law(1, "n·d·neurons in each of two products"),
                Law(0, "weights and gradients, d·neurons", "activations, n·neurons numbers, join them"),
            ),
        ),
        check=lambda n: same_steps(problem(n)),
        checked=8,
        flops=Work("2 n² · neurons", lambda n: 2.0 * n**2 * width),
        traffic=Work("8 n² + 48 n · neurons", lambda n: NUMBER * (n**2 + 6.0 * n * width)),
    )


def flowed(problem: tuple[TwoLayer, Tensor, Tensor], steps: int) -> Prepared:
    """Plain steps in the span of the points."""
    return lambda: margin_flow.train(*problem, Descent(steps, 0.01), route="dual"), steps


def descended(problem: tuple[TwoLayer, Tensor, Tensor], steps: int) -> Prepared:
    """The same steps on the weights."""
    return lambda: kkt_margin.by_autograd(*problem, steps=steps, rate=0.01), steps


def same_steps(problem: tuple[TwoLayer, Tensor, Tensor]) -> str:
    ours = margin_flow.train(*problem, Descent(10, 0.01), route="dual").model
    theirs = kkt_margin.by_autograd(*problem, steps=10, rate=0.01)
    return equal(kkt_margin.flat(ours).numpy(), kkt_margin.flat(theirs).numpy())


def points_features() -> Axis:
    rows, strong, ours, theirs = 100, 100, 20, 1

    def ensemble(p: int) -> Bilevel:
        return Bilevel(rows, strong, p, sigma_beta=50.0)

    def simulated(p: int) -> Prepared:
        points = fixed_points(ensemble(p), 1, generator=stream(0, "growth/points"))
        return lambda: blessing.sample(ensemble(p), points, ours), ours

    def refitted(p: int) -> Prepared:
        points = fixed_points(ensemble(p), 1, generator=stream(0, "growth/points"))
        return lambda: blessing.by_refits(ensemble(p), points, theirs), theirs

    def check(p: int) -> str:
        points = fixed_points(ensemble(p), 1, generator=stream(0, "growth/points"))
        trained = blessing.by_refits(ensemble(p), points, CHECKED).flatten()
        return same_law(trained, blessing.sample(ensemble(p), points, 10 * CHECKED).outputs)

    return Axis(
        id="blessing.trial.p",
        chapter="blessing",
        what=f"a logistic regression with and without a point, n = {rows}",
        along="features p",
        unit="trial",
        ours=Curve(
            "Gram factors, dual Newton",
            simulated,
            doubling(400, 6),
            Law(0, "n³ for each Newton step on a Gram matrix that is drawn as such"),
            Law(0, "Gram matrices, n²"),
        ),
        theirs=(
            Curve(
                "rows of p features, lbfgs",
                refitted,
                doubling(1600, 6),
                Law(1, "n·p for a draw and for each step of lbfgs", "the rows of many features leave the cache"),
                Law(1, "the rows, n·p"),
            ),
        ),
        check=check,
        checked=120,
        flops=Work("7 n³", lambda p: 7.0 * rows**3),
        traffic=Work("32 n²", lambda p: 4.0 * NUMBER * rows**2),
    )


def left_out_points() -> Axis:
    timed = 4

    def problem(n: int) -> tuple[Tensor, Tensor, float]:
        ensemble = Bilevel(n, max(1, n // 5), n, sigma_beta=10.0)
        data = training_sets(ensemble, 1, generator=stream(0, "growth/left out"))
        return data.gram()[0], data.labels[0], ensemble.ridge(blessing.PENALTY)

    def at_once(n: int) -> Prepared:
        gram, labels, ridge = problem(n)
        return lambda: without_each(gram, labels, ridge), 1

    def one_by_one(n: int) -> Prepared:
        gram, labels, ridge = problem(n)
        start = logistic_regression.fit(gram, labels, ridge=ridge).dual

        def work() -> list[Tensor]:
            return [blessing.trained_without(i, gram, labels, ridge=ridge, start=start) for i in range(timed)]

        return work, timed / n

    def check(n: int) -> str:
        gram, labels, ridge = problem(n)
        model = logistic_regression.fit(gram, labels, ridge=ridge)
        ours, theirs = without_each(gram, labels, ridge)[:timed], torch.stack(one_by_one(n)[0]())  # type: ignore
        moved = (model.logits[:timed] - theirs).abs().max()
        return blessing.close(ours / moved, theirs / moved, 0.05, "same outputs, in units of the largest change")

    return Axis(
        id="blessing.left_out.n",
        chapter="blessing",
        what="every point left out once",
        along="points n",
        unit="training set",
        ours=Curve(
            "one fit",
            at_once,
            doubling(150, 5),
            Law(
                3,
                "n³ for each Newton step, and once for all points that are left out",
                "passes over n² numbers still count, and LAPACK makes more operations a second of a larger matrix",
            ),
            Law(
                2,
                "Gram matrix and factor, n²",
                "the C library gives back at once only what is larger than 32 MiB: seven matrices are held until then, "
                "five from there on, and five at every size above 300 if it is told to give back all",
            ),
        ),
        theirs=(
            Curve(
                f"n fits, each from the full one ({timed} timed)",
                one_by_one,
                doubling(100, 5),
                Law(
                    4,
                    "n times n³",
                    "passes over n² numbers still count, and LAPACK makes more operations a second of a larger matrix",
                ),
                Law(2, "Gram matrix and factor, n²", "small matrices hide in pages"),
            ),
        ),
        check=check,
        checked=100,
        flops=Work("10 n³ / 3: 7 Newton steps and an inverse", lambda n: 10 / 3 * n**3),
        traffic=Work("24 n²", lambda n: 3.0 * NUMBER * n**2),
    )


def without_each(gram: Tensor, labels: Tensor, ridge: float) -> Tensor:
    """The output at each point of the model trained on the others, from one fit."""
    model = logistic_regression.fit(gram, labels, ridge=ridge)
    return logistic_regression.leave_one_out(model, gram, labels).without


def networks_models() -> Axis:
    records, inputs, width, classes, batch = 640, 446, 32, 30, 32
    recipe = ensembles.Recipe(1, batch)

    def problem(models: int) -> tuple[mlp.Mlp, Tensor, Tensor, Tensor]:
        draws = stream(0, "growth/networks")
        features, labels = blessing.binary_records((records,), inputs, classes, draws)
        rows = torch.rand(models, records, generator=draws).argsort(-1)[:, : records // 2]
        return mlp.initial((models,), (inputs, width, classes), generator=draws), features, labels, rows

    def ours(start: mlp.Mlp, features: Tensor, labels: Tensor, rows: Tensor) -> mlp.Mlp:
        draws = stream(0, "growth/shuffles")
        return ensembles.train(Perceptrons.of(start), Examples((features,), labels), rows, recipe, generator=draws)

    def theirs(start: mlp.Mlp, features: Tensor, labels: Tensor, rows: Tensor) -> mlp.Mlp:
        return by_modules(start, features, labels, rows, recipe, generator=stream(0, "growth/shuffles"))

    def single(train: Callable[..., mlp.Mlp], models: int) -> Prepared:
        start, *rest = problem(models)
        start = start.to(torch.float32)
        return lambda: train(start, *rest), 1

    def check(models: int) -> str:
        given = problem(models)
        return equal(blessing.flat(ours(*given)), blessing.flat(theirs(*given)))

    products = 3 * 2 * (records // 2) * (inputs * width + width * classes)
    numbers = inputs * width + width + width * classes + classes
    steps = records // 2 // batch
    return Axis(
        id="blessing.training.models",
        chapter="blessing",
        what=f"an epoch of {records // 2} rows, networks {inputs}-{width}-{classes}",
        along="models",
        unit="epoch of all",
        ours=Curve(
            "one tensor program",
            lambda models: single(ours, models),
            doubling(8, 6),
            Law(1, "every model takes the same steps"),
            Law(1, "parameters, gradients and Adam's two moments of every model"),
        ),
        theirs=(
            Curve(
                "a loop over PyTorch modules",
                lambda models: single(theirs, models),
                doubling(4, 5),
                Law(1, "every model takes the same steps"),
                Law(1, "parameters, gradients and Adam's two moments of every model", "a fixed part still counts"),
            ),
        ),
        check=check,
        checked=2,
        flops=Work("6 rows · parameters · models", lambda models: float(products * models)),
        traffic=Work("28 parameters · steps · models", lambda models: 28.0 * numbers * steps * models),
        precision="float32",
    )


def law_points() -> Axis:
    return prediction(
        "n",
        along="points n",
        given="p = D = 2n",
        design=lambda n: (Design(n=n, D=2 * n, sigma=SIGMA), 2 * n),
        ours=doubling(100, 6),
        theirs=doubling(128, 5),
        checked=20,
        time=Law(3, "n²·p for the solve", "the larger the matrix, the more operations LAPACK makes a second"),
        memory=Law(2, "the design, n·D", "small matrices hide in pages"),
    )


def law_features() -> Axis:
    return prediction(
        "D",
        along="features D",
        given="n = 50, p = D/2",
        design=lambda D: (Design(n=50, D=D, sigma=SIGMA), D // 2),
        ours=doubling(1000, 6),
        theirs=doubling(1000, 6),
        checked=200,
        time=Law(1, "n·D for the draw, n²·p for the solve"),
        memory=Law(1, "the design, n·D"),
    )


def prediction(
    size: str,
    *,
    along: str,
    given: str,
    design: Callable[[int], tuple[Design, int]],
    ours: tuple[int, ...],
    theirs: tuple[int, ...],
    checked: int,
    time: Law,
    memory: Law,
) -> Axis:
    """One prediction of least squares: its exact law against a design that is drawn and solved."""

    def drawn(at: int) -> Prepared:
        (model, p), draws = design(at), stream(0, "growth/law")
        query = Query.of(gaussian((model.D,), generator=draws), model, p)

        def work() -> Tensor:
            return least_squares_law.sample_outsider(model, p, query, trials=PREDICTIONS, generator=draws)

        return work, PREDICTIONS

    def trained(at: int) -> Prepared:
        (model, p), rng = design(at), np.random.default_rng(0)
        point = gaussian((model.D,), generator=stream(0, "growth/law")).numpy()
        return lambda: linear_prediction(point, p, least_squares, n=model.n, sigma=model.sigma, rng=rng), 1

    def check(at: int) -> str:
        work = trained(at)[0]
        sample = torch.tensor([work() for _ in range(CHECKED)], dtype=torch.float64)
        return same_law(sample, torch.as_tensor(drawn(at)[0]()))

    return Axis(
        id=f"min_norm.law.{size}",
        chapter="min_norm",
        what=f"least squares: one prediction, {given}",
        along=along,
        unit="prediction",
        ours=Curve(
            "the exact law",
            drawn,
            ours,
            Law(0, "four χ² and a Gaussian, whatever the design"),
            Law(0, f"{PREDICTIONS:,} predictions at a time"),
        ),
        theirs=(Curve("draw n × D, lstsq", trained, theirs, time, memory),),
        check=check,
        checked=checked,
        flops=Work("12, beside five draws", lambda at: 12.0),
        traffic=Work("48: five draws and the prediction", lambda at: 6.0 * NUMBER),
    )


def nested_widths() -> Axis:
    rows, apart = 50, 32

    def problem(count: int) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        draws, widths = stream(0, "growth/nested"), [rows + apart * (1 + step) for step in range(count)]
        features = gaussian((rows, widths[-1]), generator=draws)
        labels, query = gaussian((rows,), generator=draws), gaussian((1, widths[-1]), generator=draws)
        return features, labels, query, widths

    def nested(features: Tensor, labels: Tensor, query: Tensor, widths: list[int]) -> Tensor:
        return nested_min_norm(features, labels, query, widths=widths).squeeze(-1)

    def each(features: Tensor, labels: Tensor, query: Tensor, widths: list[int]) -> np.ndarray:
        design, known, point = features.numpy(), labels.numpy(), query[0].numpy()
        return np.array([float(point[:p] @ least_squares(design[:, :p], known)) for p in widths])

    def prepared(way: Callable[..., object], count: int) -> Prepared:
        given = problem(count)
        return lambda: way(*given), 1

    return Axis(
        id="min_norm.nested.widths",
        chapter="min_norm",
        what=f"one design at widths {apart} apart, n = {rows}",
        along="widths",
        unit="design",
        ours=Curve(
            "a Gram matrix that grows",
            lambda count: prepared(nested, count),
            doubling(16, 6),
            Law(1, "n² for each new column, n³ for each width"),
            Law(1, "n weights for each width, and a check of all columns"),
        ),
        theirs=(
            Curve(
                "lstsq at each width",
                lambda count: prepared(each, count),
                doubling(16, 5),
                Law(
                    2,
                    "n²·p at each width p, which rises with their number",
                    "at the narrow widths what LAPACK does besides, n³, counts as much",
                ),
                Law(1, "a copy of the widest design, n·p"),
            ),
        ),
        check=lambda count: equal(nested(*problem(count)).numpy(), each(*problem(count))),
        checked=8,
        flops=Work("(2 · 32 n² + n³/3) · widths", lambda count: (2.0 * apart * rows**2 + rows**3 / 3) * count),
        traffic=Work("(256 n + 16 n²) · widths", lambda count: NUMBER * (apart * rows + 2.0 * rows**2) * count),
    )
