"""Along what the cost of attacks grows: gradient inversion, polytopes and the audit.

Every axis checks at a small size that its methods agree.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import gradient_inversion as inversion
import ordinary_attacks
from growing import NUMBER, Axis, Curve, Law, Prepared, Work, doubling
from leakage.attacks.gradient_inversion import moments, span
from leakage.attacks.gradient_inversion.recover import recover
from leakage.attacks.membership import shadow_models
from leakage.attacks.membership.posterior import logit
from leakage.data import membership_splits
from leakage.data.gaussians import gaussian
from leakage.geometry.subdivision import subdivide
from leakage.metrics.reconstruction import match_error
from leakage.metrics.scores import rates
from leakage.models import mlp
from leakage.runtime import stream
from leakage.studies.polytopes import brute_force, other_algorithms
from leakage.studies.polytopes.cell_counts import he_networks
from leakage.studies.polytopes.windows import box
from timing import Disagreement, equal


def tensor_dimension() -> Axis:
    batch, width = 2, 1000

    def problem(d: int) -> tuple[inversion.Observation, Tensor]:
        inputs, seen = inversion.problem("growth", batch, d, width, activation="polynomial", bias=30.0)
        return seen, torch.linalg.qr(inputs.mT).Q

    def projected(seen: inversion.Observation, basis: Tensor) -> Tensor:
        return moments.of_outputs(seen, centre=False).tensor(basis)

    def dense(seen: inversion.Observation, basis: Tensor) -> Tensor:
        return torch.einsum("ijk,ia,jb,kc->abc", inversion.dense_tensor(seen), basis, basis, basis)

    def prepared(way: Callable[..., Tensor], d: int) -> Prepared:
        given = problem(d)
        return lambda: way(*given), 1

    return Axis(
        id="gradient_inversion.tensor.d",
        chapter="gradient_inversion",
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
        flops=Work("2 m d (B + 1)", lambda d: 2.0 * width * d * (batch + 1)),
        traffic=Work("16 m d: the weights, twice", lambda d: 2.0 * NUMBER * width * d),
    )


def span_dimension() -> Axis:
    batch, width = 4, 2000

    def rows(d: int) -> Tensor:
        hidden = inversion.problem("growth", batch, d, width, activation="tanh", bias=3.0)[1].hidden
        assert hidden is not None
        return hidden

    def sketched(given: Tensor) -> Tensor:
        return span.of_rows(given, generator=stream(0, "growth/sketch")).basis

    def decomposed(given: Tensor) -> Tensor:
        return torch.linalg.svd(given, full_matrices=False)[2][:batch].mT

    def prepared(way: Callable[[Tensor], Tensor], d: int) -> Prepared:
        given = rows(d)
        return lambda: way(given), 1

    def check(d: int) -> str:
        return equal(*((basis @ basis.mT).numpy() for basis in (sketched(rows(d)), decomposed(rows(d)))))

    sketch = 16  # columns, of which 4 carry the inputs
    return Axis(
        id="gradient_inversion.span.d",
        chapter="gradient_inversion",
        what=f"the exact span of {batch} inputs, m = {width:,} neurons",
        along="dimension d",
        unit="span",
        ours=Curve(
            "a sketch that reads off the rank",
            lambda d: prepared(sketched, d),
            doubling(256, 6),
            Law(1, "m·d for each of 16 columns, in four products"),
            Law(1, "a few vectors of length d for each column"),
        ),
        theirs=(
            Curve(
                "singular value decomposition",
                lambda d: prepared(decomposed, d),
                doubling(48, 5),
                Law(2, "m·d² while d is below m"),
                Law(1, "copies of the rows, m·d", "d² numbers of the right factor join them"),
            ),
        ),
        check=check,
        checked=64,
        flops=Work("8 m d · 16", lambda d: 8.0 * width * d * sketch),
        traffic=Work("32 m d: the rows, four times", lambda d: 4.0 * NUMBER * width * d),
    )


def attack_neurons() -> Axis:
    batch, dimension = 2, 50

    def problem(m: int) -> tuple[Tensor, inversion.Observation]:
        return inversion.problem("growth", batch, dimension, m, activation="tanh", bias=0.0)

    def recovered(seen: inversion.Observation) -> inversion.Reconstruction:
        return recover(seen, batch=batch, norm=1.0, generator=stream(0, "growth/recover"))

    def matched(seen: inversion.Observation) -> inversion.Reconstruction:
        return inversion.matched(seen, batch, stream(0, "growth/match"))

    def prepared(way: Callable[..., inversion.Reconstruction], m: int) -> Prepared:
        seen = problem(m)[1]
        return lambda: way(seen), 1

    def check(m: int) -> str:
        inputs, seen = problem(m)
        errors = [match_error(way(seen).inputs, inputs, signs=False) for way in (recovered, matched)]
        if not max(errors) < inversion.FOUND:
            raise Disagreement(f"not every batch is found: errors up to sign are {errors}.")
        return f"same batch, up to sign: errors {errors[0]:.0e} against {errors[1]:.0e}"

    return Axis(
        id="gradient_inversion.attack.m",
        chapter="gradient_inversion",
        what=f"{batch} inputs from a gradient, d = {dimension}",
        along="neurons m",
        unit="batch",
        ours=Curve(
            "span, tensor and least squares",
            lambda m: prepared(recovered, m),
            doubling(16_000, 5),
            Law(1, "m·d for the span; the fit is over a fixed number of neurons"),
            Law(1, "the rows in the span, m·B, and copies of them"),
        ),
        theirs=(
            Curve(
                "gradient matching by L-BFGS",
                lambda m: prepared(matched, m),
                doubling(4000, 5),
                Law(1, "m·d·B for each step", "how many steps it takes differs from size to size"),
                Law(1, "gradients of all weights, m·d"),
            ),
        ),
        check=check,
        checked=500,
        flops=Work("8 m d · 10, for the span alone", lambda m: 80.0 * m * dimension),
        traffic=Work("64 m d: rows and weights, four times", lambda m: 8.0 * NUMBER * m * dimension),
    )


def polytopes_neurons() -> Axis:
    timed, finer = 1, 16
    window = box((-10.0, -10.0), (10.0, 10.0))

    def network(neurons: int) -> mlp.Mlp:
        return he_networks((2, neurons // 2, neurons // 2, 2), 1, generator=stream(0, "growth/cut"))[0]

    def cut(neurons: int) -> Prepared:
        given = network(neurons)
        return lambda: subdivide(given, window), 1

    def programmed(neurons: int) -> Prepared:
        given = network(neurons)
        fine = subdivide(given, window)
        chosen = fine.middles[torch.linspace(0, len(fine) - 1, timed + 2).long()[1:-1]]
        return lambda: [brute_force.by_programs(given, one, window=window) for one in chosen], timed / len(fine)

    def painted(neurons: int) -> Prepared:
        given = network(neurons)
        side = int((finer * len(subdivide(given, window))) ** 0.5)
        return lambda: brute_force.by_pixels(given, window, side=side), 1

    def check(neurons: int) -> str:
        fine = subdivide(network(neurons), window)
        found = other_algorithms.with_programs(fine, torch.arange(4))
        if not bool(found.same_edges.all()):
            raise Disagreement(f"the polytopes differ: same edges {found.same_edges.tolist()}.")
        seen = int(brute_force.by_pixels(network(neurons), window, side=100).max()) + 1
        return f"same edges of 4 polytopes; pixels see {seen} of {len(fine)}"

    def lines_tried(neurons: int) -> float:
        """Pairs of a line and a polygon: every neuron meets the polygons that the ones before it leave."""
        counts = subdivide(network(neurons), window).layer_counts
        return float(
            neurons / 2 * sum((before + after) / 2 for before, after in zip((1, *counts), counts, strict=False))
        )

    return Axis(
        id="polytopes.cut.neurons",
        chapter="polytopes",
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
                f"two linear programs for each edge ({timed} cell timed)",
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
        flops=Work("20 for each line and polygon that meet", lambda neurons: 20 * lines_tried(neurons)),
        traffic=Work("80 for each of them: five corners", lambda neurons: 80 * lines_tried(neurons)),
    )


def curves_points() -> Axis:
    models, fprs = 2, (0.01,)

    def problem(points: int) -> tuple[Tensor, Tensor]:
        draws = stream(0, "growth/curves")
        member, _ = membership_splits.complementary_halves(points, models, generator=draws)
        return gaussian((models, points), generator=draws) + member, member

    def sorted_once(scores: Tensor, member: Tensor) -> np.ndarray:
        found = rates(scores, member=member, fprs=fprs)
        return np.stack([found[name].numpy() for name in ("auc", f"tpr_at_{fprs[0]}")], axis=-1)

    def compared(scores: Tensor, member: Tensor) -> np.ndarray:
        return ordinary_attacks.roc(scores.numpy(), member.numpy(), fprs)

    def prepared(way: Callable[..., np.ndarray], points: int) -> Prepared:
        given = problem(points)
        return lambda: way(*given), 1

    return Axis(
        id="audit.curves.points",
        chapter="audit_your_model",
        what=f"AUC and true positive rates of {models} models",
        along="points",
        unit="attack",
        ours=Curve(
            "one sort",
            lambda points: prepared(sorted_once, points),
            doubling(16_000, 6),
            Law(1, "a sort, points·log points"),
            Law(1, "sorted scores and ranks"),
        ),
        theirs=(
            Curve(
                "every member against every outsider",
                lambda points: prepared(compared, points),
                doubling(2000, 5),
                Law(
                    2,
                    "a quarter of the pairs of points",
                    "a step of the loop costs as much as its row of pairs up to some 10,000 points",
                ),
                Law(1, "one row of pairs at a time"),
            ),
        ),
        check=lambda points: equal(sorted_once(*problem(points)), compared(*problem(points))),
        checked=500,
        flops=Work(
            "models · points · log₂ points, comparisons", lambda points: models * points * float(np.log2(points))
        ),
        traffic=Work("16 models · points", lambda points: 2.0 * NUMBER * models * points),
    )


def ratios_models() -> Axis:
    points, targets = 500, 4

    def problem(models: int) -> tuple[Tensor, Tensor, Tensor]:
        draws = stream(0, "growth/ratios")
        member, partner = membership_splits.complementary_halves(points, models, generator=draws)
        losses = torch.rand(models, points, generator=draws, dtype=torch.float64) + 0.1
        return losses, member, partner

    def sums(losses: Tensor, member: Tensor, partner: Tensor) -> Tensor:
        return shadow_models.lira(losses, member, partner, variance="own")

    def loops(losses: Tensor, member: Tensor, partner: Tensor) -> np.ndarray:
        models = range(len(losses))
        chosen = [[other for other in models if other not in (t, int(partner[t]))] for t in range(targets)]
        return ordinary_attacks.lira(logit(losses).numpy(), member.numpy(), chosen, ordinary_attacks.of_each)[:targets]

    def at_once(models: int) -> Prepared:
        given = problem(models)
        return lambda: sums(*given), 1

    def one_by_one(models: int) -> Prepared:
        given = problem(models)
        return lambda: loops(*given), targets / models

    return Axis(
        id="audit.ratios.models",
        chapter="audit_your_model",
        what=f"LiRA of every model on {points} points",
        along="models",
        unit="audit",
        ours=Curve(
            "products with the matrix of references",
            at_once,
            doubling(64, 5),
            Law(
                2,
                "a product with the matrix of references: no target's number is added and taken out again",
                "passes over the scores, linear in the models, still count",
            ),
            Law(1, "a score for each model and point"),
        ),
        theirs=(
            Curve(
                f"a loop over targets and points ({targets} targets timed)",
                one_by_one,
                doubling(32, 5),
                Law(2, "models − 2 references for every target", "a list costs a fixed time, however short"),
                Law(1, "a score for each model and point"),
            ),
        ),
        check=lambda models: equal(sums(*problem(models))[:targets].numpy(), loops(*problem(models))),
        checked=16,
        flops=Work("16 models² · points", lambda models: 16.0 * models**2 * points),
        traffic=Work("16 models · points", lambda models: 2.0 * NUMBER * models * points),
    )
