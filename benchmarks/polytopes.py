"""Chapter polytopes: cutting, exact rays and Gram matrices against the searches and matrices they replace.

`python benchmarks/polytopes.py [--record]`. Networks are random ones at a wide bias, which have as many polytopes in
the window as trained ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from leakage.draws import gaussian
from leakage.membership import boundary_distance, rays
from leakage.membership.polytopes import activation_pattern, jacobian_norm, output_map
from leakage.membership.rays import segment_label_change
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.papers.polytopes import other_algorithms
from reproduced.papers.polytopes.subdivision import Subdivision, subdivide
from reproduced.papers.polytopes.theorems import he_networks
from reproduced.papers.polytopes.windows import box_corners
from reproduced.runtime import stream
from timing import Benchmark, Case, Disagreement, Side, equal

APART = 1e-8  # how far the ends of an edge by linear programs may be from the corners: rounding gives 1e-14
SEARCHED = 1e-9  # a bisection whose bracket held one crossing ends there; others end at a later one


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    hidden: tuple[int, ...] = (25, 25, 25, 25)  # layers of the network that is cut
    reach: float = 10.0  # half the side of the window, in units of the biases
    cells: int = 4  # polytopes that the linear programs are solved for
    side: int = 800  # pixels along one side
    widths: tuple[int, ...] = (446, 128, 30)  # of the network for rays, norms and projections
    points: int = 1252  # how many there are
    steps: int = 60  # of the bisection
    rounds: int = 5  # turns


PROMISED = {"programs": 2000.0, "pixels": 3.0, "rays": 4.0, "norms": 100.0, "differentiated": 5.0}


def cases(sizes: Sizes) -> Iterator[Case]:
    yield programs(sizes)
    yield pixels(sizes)
    yield first_rays(sizes)
    yield norms(sizes)
    yield differentiated(sizes)


def programs(sizes: Sizes) -> Case:
    network, window, fine = cut(sizes)
    chosen = torch.linspace(0, len(fine) - 1, sizes.cells).long()

    def theirs() -> list[other_algorithms.Polytope]:
        return [other_algorithms.solve_programs(network, fine.centres[cell], window=window) for cell in chosen]

    def check() -> str:
        found = other_algorithms.compare_programs(fine, chosen)
        gap = float(found.vertex_error.max())
        if not bool(found.same_edges.all()) or not gap < APART:
            raise Disagreement(
                f"the polytopes differ: same edges {found.same_edges.tolist()}, corners up to {gap:.2g}."
            )
        return f"same polytopes: edges of {sizes.cells}, corners up to {gap:.1g}"

    return Case(
        id="programs",
        what=f"all {len(fine):,} polytopes of {sum(sizes.hidden)} neurons",
        unit="window",
        ours=Side("cutting", partial(subdivide, network, window)),
        theirs=Side("two linear programs for each edge", theirs, len(chosen) / len(fine)),
        check=check,
        rounds=sizes.rounds,
    )


def pixels(sizes: Sizes) -> Case:
    network, window, fine = cut(sizes)
    theirs = partial(other_algorithms.number_pixels, network, window, side=sizes.side)

    def check() -> str:
        seen = int(theirs().max()) + 1
        if seen > len(fine):
            raise Disagreement(f"pixels see {seen} patterns, and cutting finds {len(fine)}.")
        return f"same window: pixels see {seen:,} of {len(fine):,} polytopes"

    return Case(
        id="pixels",
        what=f"polytopes of {sum(sizes.hidden)} neurons",
        unit="window",
        ours=Side("cutting, all of them", partial(subdivide, network, window)),
        theirs=Side(f"{sizes.side} × {sizes.side} pixels, some", theirs),
        check=check,
        rounds=sizes.rounds,
    )


def first_rays(sizes: Sizes) -> Case:
    network, points, aims = asked(sizes)

    theirs = partial(other_algorithms.search_rays, network, points, aims, steps=sizes.steps, event="pattern")

    def ours() -> Tensor:
        return rays.ray_crossings(network, points, aims, crossings=1).lengths[..., 0]

    def check() -> str:
        exact, found = ours(), theirs()
        met = found.isfinite() & exact.isfinite()
        excess = (found - exact)[met]
        if not bool(met.any()) or not float(excess.min()) > -SEARCHED:
            raise Disagreement(f"the search finds an earlier crossing on {int((excess < -SEARCHED).sum())} rays.")
        first = float((excess < SEARCHED).double().mean())
        return f"same first crossing on {first:.0%} of the rays, a later one by the search on the others"

    return Case(
        id="rays",
        what=f"first hyperedge on {len(points):,} rays",
        unit=f"{len(points):,} rays",
        ours=Side("exact", ours),
        theirs=Side("steps of one and bisection (Algorithm 5)", theirs),
        check=check,
        rounds=sizes.rounds,
    )


def norms(sizes: Sizes) -> Case:
    network, points, _ = asked(sizes)
    gates = activation_pattern(network, points)

    def theirs() -> Tensor:
        return output_map(network, gates)[0].square().sum((-2, -1)).sqrt()

    return Case(
        id="norms",
        what=f"Frobenius norms at {len(points):,} points",
        unit=f"{len(points):,} points",
        ours=Side("Gram matrices", lambda: jacobian_norm(network, gates)),
        theirs=Side("of the Jacobian, formed", theirs),
        check=lambda: equal(jacobian_norm(network, gates).numpy(), theirs().numpy()),
        rounds=sizes.rounds,
    )


def differentiated(sizes: Sizes) -> Case:
    """DeepFool, against the way of its authors."""
    network, points, _ = asked(sizes)
    few, ours = points[:16], partial(boundary_distance.deepfool, network, points)

    def theirs() -> Tensor:
        return torch.cat([ordinary_deepfool(network, point.unsqueeze(0)) for point in few])

    def check() -> str:
        there, found = ours()[: len(few)], theirs()
        met = there.isfinite() & found.isfinite()
        return equal(there[met].numpy(), found[met].numpy())

    return Case(
        id="differentiated",
        what=f"DeepFool at {len(points):,} points",
        unit=f"{len(points):,} points",
        ours=Side("all at once, in the row space of the first layer", ours),
        theirs=Side("one at a time, gradients of each class by differentiation", theirs, len(few) / len(points)),
        check=check,
        rounds=sizes.rounds,
    )


def ordinary_deepfool(network: Mlp, points: Tensor) -> Tensor:
    """Distances by DeepFool as it is usually written: one backward pass for each class and projection."""
    ends, labels = points.clone(), network(points).argmax(-1)
    moving = torch.arange(len(points))
    for _ in range(boundary_distance.MAX_PROJECTIONS):
        here = ends[moving].requires_grad_()
        outputs = network(here)
        slopes = torch.stack(
            [torch.autograd.grad(column.sum(), here, retain_graph=True)[0] for column in outputs.unbind(-1)], 1
        )
        rows_of, own = torch.arange(len(moving)), labels[moving]
        gaps = outputs.detach()[rows_of, own].unsqueeze(-1) - outputs.detach()
        slopes = slopes[rows_of, own].unsqueeze(1) - slopes
        lengths = slopes.norm(dim=-1)
        far = torch.where(lengths > 0, gaps / lengths, torch.inf)
        near = far.argmin(-1)
        # Where the piece is constant there is no way to go.
        step = torch.where(far[rows_of, near].isfinite(), far[rows_of, near] / lengths[rows_of, near], 0.0)
        ends[moving] -= (1 + boundary_distance.OVERSHOOT) * step.unsqueeze(-1) * slopes[rows_of, near]
        moving = moving[network(ends[moving]).argmax(-1) == labels[moving]]
        if not len(moving):
            break
    reached = torch.ones(len(points), dtype=torch.bool).index_fill(0, moving, False)
    return torch.where(reached, segment_label_change(network, points, ends), torch.inf)


def cut(sizes: Sizes) -> tuple[Mlp, Tensor, Subdivision]:
    """A random network, a window, and the polytopes in it."""
    network = he_networks((2, *sizes.hidden, 2), 1, generator=stream(0, "benchmark/cut"))[0]
    window = box_corners((-sizes.reach, -sizes.reach), (sizes.reach, sizes.reach))
    return network, window, subdivide(network, window)


def asked(sizes: Sizes) -> tuple[Mlp, Tensor, Tensor]:
    """A random network, points, and a direction for each."""
    draws = stream(0, "benchmark/asked")
    network = mlp.initial((), sizes.widths, generator=draws)
    points, aims = gaussian((2, sizes.points, sizes.widths[0]), generator=draws)
    return network, points, aims / aims.norm(dim=-1, keepdim=True)


BENCHMARK = Benchmark("polytopes", "The inside story", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
