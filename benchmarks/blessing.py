"""Chapter blessing: the exact theory, its simulations and the networks, against the loops they replace.

`python benchmarks/blessing.py [--record]`. Where the straightforward side is an approximation (a grid, a solver's
tolerance), or ours is (`left_out`), the check says how far they are apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from leakage.trainers import dp_sgd, ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble
from ordinary_models import by_modules, clipped_by_examples, drawn, explicit, refits
from reproduced.papers.blessing import logistic_models, logistic_regression
from reproduced.papers.blessing.limit import Setting, solve
from reproduced.papers.blessing.logistic_models import Bilevel, Points, draw_points, draw_training_sets
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    average_advantage,
    average_over_points,
    densities,
    logit_quadrature,
)
from reproduced.papers.blessing.proximal_operator import prox
from reproduced.runtime import stream
from timing import Benchmark, Case, Disagreement, Side, equal, same_law

GRID = 5e-3  # error of 301 nodes in the averaged advantage: 1e-3 is measured, at the smallest ridge
REFITTED = 1e-3  # of an output of size 3: lbfgs errs by 4e-6, one point's influence on the others makes 1e-4
LEFT_OUT = 0.01  # of the largest change of an output; 1e-3 is measured
TEACHER_NODES = 61  # in Z, of both sides; ours is then right to 4e-10
POINTS_AT_ONCE = 4  # whose densities stay in the processor's cache: a third faster than one at a time
PENALTY = 0.1  # λ of the paper's Figure 2


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    panel: tuple[int, int] = (20, 50)  # numbers of φ and of λδ, at whose pairs the advantage is averaged
    nodes: tuple[int, ...] = (301, 2001)  # of the grids in the output
    # n, d and p of Figure 2, and how many trials on our side and on theirs.
    trial: tuple[int, int, int, int, int] = (500, 1000, 3000, 10, 3)
    points: int = 4  # fixed points
    # n, d and p of the comparison of laws, and how many trials on theirs and on our side.
    checked: tuple[int, int, int, int, int] = (60, 120, 360, 200, 2000)
    # n, d and p of the training set, and how many of its points are left out by training again.
    left_out: tuple[int, int, int, int] = (300, 60, 300, 20)
    # Networks, records, rows of each network, inputs, width, classes and batch.
    training: tuple[int, int, int, int, int, int, int] = (16, 3000, 960, 446, 32, 30, 32)
    private: tuple[int, int, int, int, int] = (4, 64, 446, 128, 30)  # networks, batch, inputs, width and classes
    private_steps: int = 20  # sums on our side
    rounds: int = 5  # turns, 3 at most of the theory, which takes long


PROMISED = {"advantage.301": 3.0, "advantage.2001": 20.0, "trial": 2.0, "left_out": 50.0}
PROMISED |= {"training": 3.0, "private": 20.0}


def cases(sizes: Sizes) -> Iterator[Case]:
    for nodes in sizes.nodes:
        yield advantage(sizes, nodes)
    yield trial(sizes)
    yield left_out(sizes)
    yield training(sizes)
    yield private(sizes)


def advantage(sizes: Sizes, nodes: int) -> Case:
    law = panel_laws(*sizes.panel)
    count = len(law.alpha)
    ours, theirs = partial(average_advantage, law, nodes=TEACHER_NODES), partial(by_grid, law, nodes)
    return Case(
        id=f"advantage.{nodes}",
        what=f"{count:,} averaged advantages, {nodes:,} outputs",
        unit=f"{count:,} models",
        ours=Side("root of the likelihood ratio", ours),
        theirs=Side(f"densities at {nodes:,} outputs", theirs),
        check=lambda: close(ours(), theirs(), GRID, "same advantages"),
        rounds=min(3, sizes.rounds),
    )


def panel_laws(widths: int, penalties: int) -> OutputLaw:
    """The laws of the models on a panel of the figures, as vectors."""
    phi = torch.logspace(0.05, 2, widths, dtype=DTYPE)[:, None]
    law = solve(Setting.from_lambda_delta(lambda_delta=torch.logspace(-5, 6, penalties, dtype=DTYPE), phi=phi)).law
    return OutputLaw(law.alpha.flatten(), law.sigma.flatten(), law.gamma.flatten(), law.kappa.flatten())


def by_grid(law: OutputLaw, nodes: int) -> Tensor:
    r"""$\int \max\{f_{\text{member}} - f_{\text{outsider}}, 0\}\,dz$ on equal steps of z, averaged over the points."""
    parts = []
    for chosen in torch.arange(len(law.alpha)).split(POINTS_AT_ONCE):
        some = OutputLaw(law.alpha[chosen], law.sigma[chosen], law.gamma[chosen], law.kappa[chosen])
        rule, wide = logit_quadrature(some.kappa, nodes=TEACHER_NODES), some.unsqueeze()
        mean, one = wide.alpha * rule.nodes, torch.ones_like(rule.nodes)
        low, high = mean - 9 * wide.sigma, prox(mean + 9 * wide.sigma, wide.gamma, one)
        z = torch.lerp(low[..., None], high[..., None], torch.linspace(0, 1, nodes, dtype=DTYPE))
        outsider, member = densities(wide, z, teacher=rule.nodes, label=one)
        parts.append(average_over_points(torch.trapezoid((member - outsider).clamp_min(0), z, dim=-1), rule))
    return torch.cat(parts)


def trial(sizes: Sizes) -> Case:
    *size, ours, theirs = sizes.trial
    ensemble = Bilevel(*size, sigma_beta=50.0)
    points = draw_points(ensemble, sizes.points, generator=stream(0, "benchmark/points"))
    return Case(
        id="trial",
        what=f"{sizes.points} points, n = {ensemble.n}, p = {ensemble.p:,}",
        unit="trial",
        ours=Side("Gram factors, dual Newton, proximal operator", partial(sample, ensemble, points, ours), ours),
        theirs=Side(
            f"rows of {ensemble.p:,} features, {sizes.points + 1} fits by scikit-learn's lbfgs",
            partial(by_refits, ensemble, points, theirs),
            theirs,
        ),
        check=lambda: f"{same_outputs(sizes)}; {same_refits(ensemble, points)}",
        rounds=sizes.rounds,
    )


def sample(ensemble: Bilevel, points: Points, trials: int) -> logistic_models.PointOutputs:
    draws = stream(0, "benchmark/trials")
    return logistic_models.simulate_outputs(ensemble, points, penalty=PENALTY, trials=trials, generator=draws)


def by_refits(ensemble: Bilevel, points: Points, trials: int) -> Tensor:
    """Outputs at the points of models trained with them, one row a trial, as one writes it."""
    draws, asked, ridge = stream(0, "benchmark/refits"), explicit(ensemble, points), ensemble.ridge(PENALTY)
    return torch.stack([refits(*drawn(ensemble, draws), asked, points.labels, ridge=ridge)[1] for _ in range(trials)])


def same_outputs(sizes: Sizes) -> str:
    """Evidence that both sides answer a point they have seen by the same law."""
    *size, theirs, ours = sizes.checked
    ensemble = Bilevel(*size, sigma_beta=50.0)
    points = draw_points(ensemble, 1, generator=stream(0, "benchmark/checked"))
    return same_law(by_refits(ensemble, points, theirs).flatten(), sample(ensemble, points, ours).outputs)


def same_refits(ensemble: Bilevel, points: Points) -> str:
    """How far `predict_with_point` is from training again, on the same rows."""
    rows, labels = drawn(ensemble, stream(0, "benchmark/same"))
    asked = explicit(ensemble, points)
    model = logistic_regression.fit(rows @ rows.T, labels, ridge=ensemble.ridge(PENALTY))
    added = logistic_regression.predict_with_point(model, rows @ asked.T, asked.square().sum(-1), points.labels)
    without, outputs = refits(rows, labels, asked, points.labels, ridge=model.ridge)
    pairs = torch.stack([added.without, added.outputs]), torch.stack([without, outputs])
    return close(*pairs, REFITTED, "on the same rows")


def left_out(sizes: Sizes) -> Case:
    *size, count = sizes.left_out
    ensemble = Bilevel(*size, sigma_beta=10.0)
    data = draw_training_sets(ensemble, 1, generator=stream(0, "benchmark/left out"))
    gram, labels, ridge = data.gram()[0], data.labels[0], ensemble.ridge(PENALTY)

    def ours() -> tuple[logistic_regression.Fit, Tensor]:
        model = logistic_regression.fit(gram, labels, ridge=ridge)
        return model, logistic_regression.leave_one_out(model).without

    start = logistic_regression.fit(gram, labels, ridge=ridge).dual

    def theirs() -> Tensor:
        return torch.stack([trained_without(i, gram, labels, ridge=ridge, start=start) for i in range(count)])

    def check() -> str:
        model, found = ours()
        moved = (model.logits - found)[:count].abs().max()
        return close(found[:count] / moved, theirs() / moved, LEFT_OUT, "same outputs, in units of the largest change")

    return Case(
        id="left_out",
        what=f"every point left out once, n = {ensemble.n}",
        unit="training set",
        ours=Side("one fit", ours),
        theirs=Side(
            f"{ensemble.n} fits by our own solver, each from the full one ({count} timed)", theirs, count / ensemble.n
        ),
        check=check,
        rounds=sizes.rounds,
    )


def trained_without(point: int, gram: Tensor, labels: Tensor, *, ridge: float, start: Tensor) -> Tensor:
    """The output at one point of the model trained on all others."""
    kept = torch.arange(len(labels)) != point
    model = logistic_regression.fit(gram[kept][:, kept], labels[kept], ridge=ridge, start=start[kept])
    return gram[point, kept] @ model.dual


def training(sizes: Sizes) -> Case:
    models, records, count, inputs, width, classes, batch = sizes.training
    draws, recipe = stream(0, "benchmark/training"), ensembles.Recipe(1, batch)
    features, labels = binary_records((records,), inputs, classes, draws)
    rows = torch.rand(models, records, generator=draws).argsort(-1)[:, :count]
    examples = Examples((features,), labels)
    start = mlp.initial((models,), (inputs, width, classes), generator=draws)

    def ours(start: Mlp) -> Mlp:
        shuffles = stream(0, "benchmark/shuffles")
        return ensembles.train(MlpEnsemble.from_mlp(start), examples, rows, recipe, generator=shuffles)

    def theirs(start: Mlp) -> Mlp:
        return by_modules(start, features, labels, rows, recipe, generator=stream(0, "benchmark/shuffles"))

    single = start.to(torch.float32)
    return Case(
        id="training",
        what=f"{models} networks {inputs}-{width}-{classes}, batch {batch}",
        unit="epoch",
        ours=Side("one tensor program", lambda: ours(single)),
        theirs=Side("a loop over PyTorch modules and their Adam", lambda: theirs(single)),
        check=lambda: equal(flat(ours(start)), flat(theirs(start))),
        rounds=sizes.rounds,
    )


def private(sizes: Sizes) -> Case:
    models, batch, inputs, width, classes = sizes.private
    draws = stream(0, "benchmark/private")
    points, labels = binary_records((models, batch), inputs, classes, draws)
    networks = mlp.initial((models,), (inputs, width, classes), generator=draws)

    def ours(networks: Mlp, points: Tensor) -> Mlp:
        sums = dp_sgd.clipped_gradient_sum(networks, points, labels, clip=1.0)
        return Mlp(tuple(sums[::2]), tuple(sums[1::2]))

    single, near = networks.to(torch.float32), points.float()
    wide, single_wide = dp_sgd.repeat_for_settings(networks, 1), dp_sgd.repeat_for_settings(single, 1)
    return Case(
        id="private",
        what=f"DP-SGD, {models} networks {inputs}-{width}-{classes}, batch {batch}",
        unit="clipped sum",
        ours=Side(
            "norms without gradients for each example", lambda: ours(single_wide, near), calls=sizes.private_steps
        ),
        theirs=Side("a gradient for each example, vmap(vmap(grad))", lambda: clipped_by_examples(single, near, labels)),
        check=lambda: equal(flat(ours(wide, points)[:, 0]), flat(clipped_by_examples(networks, points, labels))),
        rounds=sizes.rounds,
    )


def close(ours: Tensor, theirs: Tensor, tolerance: float, what: str) -> str:
    """Evidence that numbers agree up to an error that one of the sides is known to make."""
    difference = float((ours - theirs).abs().max())
    if not difference < tolerance:
        raise Disagreement(f"{what}? They differ by {difference:.2g}, more than {tolerance:g}.")
    return f"{what}: up to {difference:.1g}"


def binary_records(shape: tuple[int, ...], inputs: int, classes: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Records with one feature in eight present, as in Location-30, and random classes."""
    points = (torch.rand((*shape, inputs), generator=draws) < 0.125).to(DTYPE)
    return points, torch.randint(classes, shape, generator=draws)


def flat(networks: Mlp) -> NDArray[np.float64]:
    """All parameters as one vector."""
    return torch.cat([part.flatten() for part in (*networks.weights, *networks.biases)]).numpy()


BENCHMARK = Benchmark("blessing", "A blessing of dimensionality", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
