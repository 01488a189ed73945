"""How costs grow with a size, ours beside the straightforward way, for one algorithm of each paper.

`python benchmarks/growth.py [--record]`. An axis takes a comparison of a chapter's benchmark, which checks that its
sides agree, and varies one size on a geometric grid. Seconds are CPU seconds of one thread, the least of several turns.
An exponent is the slope in the logarithms over the largest sizes, at which the leading term dominates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import blessing
import gradient_inversion
import kkt_margin
import min_norm
import polytopes
from reproduced.papers.min_norm.least_squares import Design
from timing import ROOT, Case, Side, cpu_seconds, one_thread, wants_record, write_record

PATH = "book/records/growth.json"
FITTED = 4  # sizes
LONGEST = 5.0  # seconds of one call, after which a curve ends
LASTING, TURNS = 0.02, 5  # seconds of a turn, far above the clock's resolution, and how many


class Curve(NamedTuple):
    """A method along an axis, and the exponent that theory gives its time."""

    side: str  # "ours" or "theirs"
    method: str
    first: int  # size; four doublings follow
    theory: int
    reason: str
    at: Callable[[int], Side] | None = None  # makes it at a size, where it is no side of the axis's comparison


class Axis(NamedTuple):
    """One comparison along one size."""

    id: str  # <chapter>.<what>.<size>
    what: str  # is computed
    along: str  # the size, in words
    case: Callable[[int], Case]
    checked: int  # the size at which the sides are shown to agree
    curves: tuple[Curve, ...]


def prediction(n: int) -> Case:
    sizes = min_norm.Sizes(linear=Design(n=n, D=2 * n, sigma=1.0), calls=1)
    return min_norm.least_squares_prediction(sizes, 2 * n)


def window(neurons: int) -> polytopes.Sizes:
    return polytopes.Sizes(hidden=(neurons // 2, neurons // 2), cells=1)


def sixteen_pixels_a_cell(neurons: int) -> Side:
    sizes = window(neurons)
    cells = len(polytopes.cut(sizes)[2])
    return polytopes.pixels(replace(sizes, side=int((16 * cells) ** 0.5))).theirs


AXES = (
    Axis(
        "kkt_margin.step.d",
        "one step of margin flow, n = 20, 200 neurons",
        "dimension d",
        lambda d: kkt_margin.step(kkt_margin.Sizes(wide=(d, 200, 1000, 20))),
        50,
        (
            Curve("ours", "coefficients of the points", 250, 0, "n²·neurons in the span, whatever d is"),
            Curve("theirs", "autograd on the weights", 1000, 1, "n·d·neurons in each of three products"),
        ),
    ),
    Axis(
        "blessing.left_out.n",
        "every point left out once",
        "points n",
        lambda n: blessing.left_out(blessing.Sizes(left_out=(n, max(1, n // 5), n, 4))),
        100,
        (
            Curve("ours", "one fit", 150, 3, "n³ for each Newton step, and once for all points that are left out"),
            Curve("theirs", "n fits, each from the full one (4 timed)", 100, 4, "n times n³"),
        ),
    ),
    Axis(
        "gradient_inversion.tensor.d",
        "third moment in the span, m = 1000 neurons",
        "dimension d",
        lambda d: gradient_inversion.tensor(gradient_inversion.Sizes(tensor=(2, d, 1000), repeats=1)),
        16,
        (
            Curve("ours", "projected neuron by neuron", 512, 1, "m·d·B for the weights in the span"),
            Curve("theirs", "made of d³ numbers", 12, 3, "m·d³ for the tensor"),
        ),
    ),
    Axis(
        "min_norm.law.n",
        "least squares: one prediction, p = D = 2n",
        "points n",
        prediction,
        20,
        (
            Curve("ours", "the exact law", 100, 0, "four χ² and a Gaussian, whatever the design"),
            Curve("theirs", "draw n × D, lstsq", 128, 3, "n²·p for the solve"),
        ),
    ),
    Axis(
        "polytopes.cut.neurons",
        "all polytopes in a window, two layers of N/2",
        "neurons N",
        lambda neurons: polytopes.programs(window(neurons)),
        32,
        (
            Curve("ours", "cutting", 32, 3, "N lines for each of the N² cells"),
            Curve(
                "theirs",
                "two linear programs for each edge (1 cell timed)",
                16,
                4,
                "2 N programs of N rows for each of the N² cells",
            ),
            Curve(
                "theirs",
                "16 pixels for each cell, some cells",
                16,
                3,
                "N neurons for each of the N² pixels",
                sixteen_pixels_a_cell,
            ),
        ),
    ),
)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent of the power law through positive values, by least squares in the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def measured(axis: Axis, curve: Curve) -> dict[str, Any]:
    """A curve of the record, as far as it goes in `LONGEST`."""
    sizes, seconds = [], []
    for size in (curve.first * 2**power for power in range(5)):
        work = curve.at(size) if curve.at else getattr(axis.case(size), curve.side)
        first = cpu_seconds(work)
        turn = replace(work, calls=math.ceil(LASTING / max(first * work.units, 1e-6)))
        long = first * work.units > LONGEST / 10
        sizes.append(size)
        seconds.append(float(f"{min([first] + [cpu_seconds(turn) for _ in range(0 if long else TURNS)]):.4g}"))
        if first * work.units > LONGEST:
            break
    found = round(exponent(sizes[-FITTED:], seconds[-FITTED:]), 3)
    law = {"exponent": found, "theory": curve.theory, "reason": curve.reason}
    return {"side": curve.side, "method": curve.method, "sizes": sizes, "seconds": seconds, **law}


def run(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> None:
    """Measure every axis, print its exponents, and with `--record` write them to `PATH` under `root`."""
    recorded, rows = wants_record(arguments, "Measure how the book's algorithms grow with their sizes.", PATH), []
    with one_thread():
        for axis in AXES:
            case = axis.case(axis.checked)
            print(f"\n{axis.id}: {axis.what}, in {axis.along}; {case.check()}", flush=True)
            curves = [measured(axis, curve) for curve in axis.curves]
            names = {"id": axis.id, "what": axis.what, "along": axis.along, "unit": case.unit}
            rows.append({**names, "curves": curves})
            for one in curves:
                print(f"  {one['side']:7}{one['method']}: {one['exponent']} ({one['theory']})", flush=True)
    if recorded:
        write_record(PATH, "Growth", "CPU seconds per unit, the least of several turns", {"axes": rows}, root=root)


if __name__ == "__main__":
    run()
