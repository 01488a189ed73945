r"""Error against the best attack's advantage, along the ridge penalty, for models of different width.

A curve belongs to one $\phi = p/d$ and runs through $\lambda\delta$ with $n/d$ = `samples` fixed; `phi` is a vector,
and results have its axis first. The *private branch* of a curve runs from an infinite ridge down to the penalty of
least error. A reading at a target is taken at the largest penalty that attains it; a curve that never attains it gives
NaN and `attained` false. Nothing is random.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.blessing.limit import InfiniteRidge, Setting, infinite_ridge, solve
from reproduced.papers.blessing.output_law import average_advantage, generalisation_error

_SHRINK, _ROUNDS = 4, 4  # of the parabola's step; the last is 10^(1/512)
_SECANTS, _CLOSE = 12, 1e-12
_advantage = partial(average_advantage, nodes=61)  # good to 1e-7 at worst, to 1e-9 on the figures' panel


@dataclass(frozen=True)
class CurveSettings:
    """n/d, η and κ of all curves of one figure; by default the paper's."""

    samples: float = 5.0
    eta: float = 1.0
    kappa: float = 10.0


class OperatingPoint(NamedTuple):
    """One penalty for each φ, with its error and average advantage; NaN where `attained` is false."""

    lambda_delta: Float[Tensor, " phis"]
    error: Float[Tensor, " phis"]
    advantage: Float[Tensor, " phis"]
    attained: Bool[Tensor, " phis"]


@dataclass(frozen=True)
class Curves:
    """Error and average advantage along the penalty, from strong to weak, with the ends and the best of each curve.

    `infinite` is the value at an infinite ridge (`limits`), `best` the penalty of least error, which is `attained` if
    it lies inside the range of penalties.
    """

    phi: Float[Tensor, " phis"]
    lambda_delta: Float[Tensor, " penalties"]
    error: Float[Tensor, "phis penalties"]
    advantage: Float[Tensor, "phis penalties"]
    infinite: InfiniteRidge
    best: OperatingPoint
    settings: CurveSettings


def trade_off(
    phi: Float[Tensor, " phis"],
    *,
    settings: CurveSettings = CurveSettings(),
    strongest: float = 1e6,
    weakest: float = 1e-5,
    per_decade: int = 8,
) -> Curves:
    r"""The trade-off curves, at `per_decade` penalties to each factor of ten of $\lambda\delta$ between the two ends.

    The least error is refined by parabolas in $\log \lambda\delta$. Source: Tan et al. (2023), Figures 3 to 5, whose
    axis is $1/(\lambda\delta)$.
    """
    ends = torch.tensor([strongest, weakest], dtype=DTYPE).log10()
    count = max(3, round(float(ends[0] - ends[1]) * per_decade) + 1)
    x = torch.lerp(ends[0], ends[1], torch.linspace(0, 1, count, dtype=DTYPE))
    error, advantage = _evaluate(phi, x.expand(len(phi), -1), settings)
    return Curves(
        phi,
        10**x,
        error,
        advantage,
        infinite_ridge(phi=phi, **asdict(settings)),
        _find_best(phi, x, error, settings),
        settings,
    )


def read_at_error(curves: Curves, target: float) -> OperatingPoint:
    r"""The most private model of error `target`, on the private branch: Figure 6b."""
    return _read(curves, target, "error", past_best=False)


def read_at_advantage(curves: Curves, target: float) -> OperatingPoint:
    r"""The model of advantage `target`, on the whole curve, as in Figure 6a."""
    return _read(curves, target, "advantage", past_best=True)


def read_within_advantage(curves: Curves, most: float) -> OperatingPoint:
    r"""The model of least error whose advantage is at most `most`.

    It is the model of least error of all where that one leaks no more, and else the first along the curve to leak so
    much, for down to the ridge of least error the error falls and the advantage rises.
    """
    allowed, reached = curves.best.advantage <= most, read_at_advantage(curves, most)
    best = zip(curves.best, reached, strict=True)
    return OperatingPoint(*(torch.where(allowed, of_best, of_reached) for of_best, of_reached in best))


def extrapolate_width(phi: Float[Tensor, " phis"], values: Float[Tensor, " phis"]) -> tuple[float, float]:
    r"""The limit of `values` as $\phi \to \infty$ by extrapolation, and a measure of its error.

    Outputs grow like a logarithm of φ, so values approach their limits like polynomials in $1/\log \phi$. The limit is
    the value at 0 of the cubic through four points, spread over the wider half of all (at least seven); the error is
    its distance from the value of the parabola through three.
    """
    found = []
    for degree in (2, 3):
        place = torch.linspace((len(phi) - 1) / 2, len(phi) - 1, degree + 1).round().long()
        powers = torch.arange(degree + 1, dtype=DTYPE)
        table = (1 / phi[place].to(DTYPE).log())[:, None] ** powers
        found.append(float(torch.linalg.solve(table, values[place].to(DTYPE))[0]))
    return found[1], abs(found[1] - found[0])


def _find_best(phi: Tensor, x: Tensor, error: Tensor, settings: CurveSettings) -> OperatingPoint:
    """The least error, at vertices of parabolas through three penalties that move together."""
    index = error.argmin(-1)
    attained = (index > 0) & (index < len(x) - 1)
    middle, step = x[index.clamp(1, len(x) - 2)], (x[0] - x[1]).abs()
    offsets = torch.tensor([-1.0, 0.0, 1.0], dtype=DTYPE)
    for _ in range(_ROUNDS):
        low, here, high = generalisation_error(
            solve(_setting(phi, 10 ** (middle[:, None] + step * offsets), settings)).law
        ).unbind(-1)
        bend = low - 2 * here + high
        vertex = torch.where(bend > 0, (low - high) / (2 * bend), torch.sign(low - high))
        middle, step = middle + step * vertex.clamp(-1, 1), step / _SHRINK
    middle = torch.where(attained, middle, x[index])
    error, advantage = (part[:, 0] for part in _evaluate(phi, middle[:, None], settings))
    return OperatingPoint(10**middle, error, advantage, attained)


def _read(curves: Curves, target: float, quantity: str, *, past_best: bool) -> OperatingPoint:
    """The operating points where the quantity, a field of `curves`, first crosses the target, from a strong ridge."""
    x, beyond = curves.lambda_delta.log10().expand(len(curves.phi), -1), getattr(curves, quantity) - target
    if not past_best:
        end = curves.best.lambda_delta.log10()[:, None]
        at_best = getattr(curves.best, quantity)[:, None] - target
        x, beyond = torch.maximum(x, end), torch.where(x < end, at_best, beyond)
    crossing = (beyond[:, 1:] * beyond[:, :-1] <= 0) & (x[:, 1:] < x[:, :-1])
    attained, index = crossing.any(-1), crossing.to(torch.int8).argmax(-1)
    (left, right), (below, above) = (
        part.gather(-1, torch.stack([index, index + 1], -1)).unbind(-1) for part in (x, beyond)
    )
    measure = {"error": generalisation_error, "advantage": _advantage}[quantity]

    def excess(z: Tensor) -> Tensor:
        return measure(solve(_setting(curves.phi, 10 ** z[:, None], curves.settings)).law)[:, 0] - target

    found = _find_root(excess, left, right, below, above, needed=attained)
    error, advantage = (part[:, 0] for part in _evaluate(curves.phi, found[:, None], curves.settings))
    numbers = [torch.where(attained, number, torch.nan) for number in (10**found, error, advantage)]
    return OperatingPoint(*numbers, attained=attained)


def _find_root(
    function: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, fa: Tensor, fb: Tensor, *, needed: Tensor
) -> Tensor:
    """A root between a and b by the Illinois rule: the secant, with the value at an end that does not move halved."""
    for _ in range(_SECANTS):
        c = torch.lerp(a, b, (fa / (fa - fb)).nan_to_num(0.5).clamp(0, 1))
        fc = function(c)
        crossed = fc * fb <= 0
        a, fa = torch.where(crossed, b, a), torch.where(crossed, fb, fa / 2)
        b, fb = c, fc
        if bool(((fc.abs() < _CLOSE) | ~needed).all()):
            break
    return b


def _evaluate(phi: Tensor, x: Tensor, settings: CurveSettings) -> tuple[Tensor, Tensor]:
    """Error and average advantage at log10(λδ) of shape `[phis, penalties]`."""
    law = solve(_setting(phi, 10**x, settings)).law
    return generalisation_error(law), _advantage(law)


def _setting(phi: Tensor, lambda_delta: Tensor, settings: CurveSettings) -> Setting:
    return Setting.from_lambda_delta(lambda_delta=lambda_delta, phi=phi[:, None], **asdict(settings))
