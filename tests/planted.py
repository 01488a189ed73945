"""Secrets, networks, settings and points whose answers are known, for several test modules."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakage.data.gaussians import sphere
from leakage.data.membership_splits import complementary_pairs
from leakage.data.tabular import LabelledData
from leakage.draws import gaussian
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.observation import Observation
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from reproduced.papers.blessing.limit import Setting
from reproduced.papers.kkt_margin.piecewise_linear import PiecewiseLinear
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import stream

# ── batches whose gradient a server has seen, with the secret beside it ───────────────────────────────────────────────


class Batch(NamedTuple):
    """What the server sees and, for the tests alone, what it must not."""

    observation: Observation
    inputs: Tensor
    labels: Tensor
    residuals: Tensor


def observe(name, inputs, weights, *, labels=None, bias=30.0, loss="half_sum"):
    """The batch with these inputs, labels -1, 1, -1, … and weights, under the activation called `name`."""
    labels = (-1.0) ** torch.arange(1, len(inputs) + 1, dtype=inputs.dtype) if labels is None else labels
    module = Client(weights, activation=name, bias=bias)
    gradient = batch_gradient(module, inputs, labels, loss=loss)
    seen = Observation.from_module(module, gradient, batch=len(inputs), loss=loss, activation=name)
    outputs = module(inputs).detach()
    return Batch(seen, inputs, labels, (outputs.sigmoid() if loss == "logistic" else outputs) - labels)


def draw_batch(name, batch, d, m, *, seed=0, orthonormal=False, norm=1.0, **options):
    """A batch of inputs of this norm and Gaussian weights, from streams of their own."""
    inputs = torch.eye(batch, d, dtype=DTYPE) if orthonormal else sphere(batch, d, generator=stream(seed, "inputs"))
    return observe(name, norm * inputs, gaussian((m, d), generator=stream(seed, "weights")), **options)


def hermite_tensor(w, order):
    """$H_p(w)$, the derivatives of the normal density over it, by $H_{p+1} = w \\otimes H_p - \\nabla H_p$."""
    identity = torch.eye(w.shape[-1], dtype=w.dtype)
    before, current = torch.zeros_like(w[..., 0]), torch.ones_like(w[..., 0])
    for degree in range(order):
        slots = list(range(degree + 1))
        raised = torch.einsum(w, [..., 0], current, [..., *slots[1:]], [..., *slots])
        for slot in slots[1:]:
            others = [other for other in slots[1:] if other != slot]
            raised = raised - torch.einsum(identity, [0, slot], before, [..., *others], [..., *slots])
        before, current = current, raised
    return current


# ── KKT points in closed form ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Symmetric:
    r"""The KKT point with n points, kernel κ on the diagonal and ρ > 1 added everywhere, and margin m.

    Half of n training points have label 1, half -1, and $x_i^\top x_j + 1 = \kappa 1[i = j] + \rho$. Neurons with
    $v_j > 0$ see the positive points at height c and have all negative ones exactly on their kink, and the other way
    round.
    """

    n: int = 6
    kappa: float = 200.0
    rho: float = 3.0
    margin: float = 2.0

    @property
    def height(self):
        """c, the height at which a neuron sees its own points: the u of norm 1 that solves for it."""
        half = self.rho * self.n / 2
        return math.sqrt(self.kappa * (self.kappa + 2 * half) / (self.n / 2 * (self.kappa + half)))

    @property
    def multiplier(self):
        """λ, the same for all points."""
        return 2 / (self.n * self.height)

    @property
    def subgradient(self):
        """s of a point at a neuron of the other sign, strictly between 0 and 1."""
        half = self.rho * self.n / 2
        return half / (self.kappa + half)

    @property
    def labels(self):
        return torch.tensor([1.0, -1.0] * (self.n // 2), dtype=DTYPE)

    @property
    def points(self):
        gram = self.kappa * torch.eye(self.n, dtype=DTYPE) + self.rho - 1
        return torch.linalg.cholesky(gram)

    def network(self, shares=((1.0,), (1.0,))):
        """Neurons that share the work of either sign in these proportions of v², each group summing to 1."""
        lifted = torch.cat([self.points, torch.ones(self.n, 1, dtype=DTYPE)], dim=-1)
        rows, outputs = [], []
        for sign, parts in zip((1.0, -1.0), shares, strict=True):
            mine = (self.labels == sign).to(DTYPE)
            weights = self.multiplier * self.labels * (mine + self.subgradient * (1 - mine))
            for part in parts:
                outputs.append(sign * math.sqrt(part * self.margin / self.height))
                rows.append(outputs[-1] * weights @ lifted)
        hidden = torch.stack(rows)
        return TwoLayer(hidden[:, :-1], hidden[:, -1], torch.tensor(outputs, dtype=DTYPE))


WIDE = Symmetric(n=6, kappa=500.0, rho=3.0)  # den = 500 + 3 - 2 · 3 · 5 = 473
CLOSE = Symmetric(n=6, kappa=20.0, rho=3.0)  # den = 20 + 3 - 30 = -7


# ── settings of ridge logistic regression, over many orders of magnitude ──────────────────────────────────────────────


def log_uniform(low, high, count, generator):
    """Log-uniform draws."""
    return low * torch.exp(torch.rand(count, generator=generator, dtype=DTYPE) * math.log(high / low))


def random_settings(count, *, seed=0):
    generator = stream(seed, "settings of ridge logistic regression")
    phi = 1 + log_uniform(0.03, 100.0, count, generator)
    return Setting.bilevel(
        penalty=log_uniform(1e-5, 1e3, count, generator),
        delta=log_uniform(0.1, 30.0, count, generator) / phi,
        phi=phi,
        eta=log_uniform(0.03, 30.0, count, generator),
        kappa=log_uniform(0.2, 100.0, count, generator),
    )


def doubles(*values):
    return torch.tensor(values, dtype=DTYPE)


# ── losses on a pool with a known leak ────────────────────────────────────────────────────────────────────────────────


def paired(models, points):
    drawn = complementary_pairs(points, models, generator=stream(0, "pairs"))
    return drawn.member, drawn.partner


def independent(models, points):
    """Subsets in which no shadow model saw the first point, all saw the second, and one saw the third."""
    member = torch.rand(models, points, generator=stream(0, "subsets")) < 0.4
    member[1:, 0], member[1:, 1], member[1:, 2] = False, True, False
    member[1, 2] = True
    return member, None


def draw_losses(member, shift, *, epochs=(), name="losses"):
    """Losses whose logits are Gaussian about a mean of each point, larger by `shift` for members."""
    draws = stream(0, name)
    noise = torch.randn(*epochs, *member.shape, generator=draws, dtype=torch.float64)
    level = 2 * torch.randn(member.shape[-1], generator=draws, dtype=torch.float64)
    return torch.nn.functional.softplus(-(level + noise + shift * member))


def split_shadows(values, member, partner, target, point):
    """The values of the shadow models that saw a point, and of those that did not."""
    kept = torch.ones(len(member), dtype=torch.bool)
    kept[target] = False
    if partner is not None:
        kept[partner[target]] = False
    seen, inside = values[kept, point], member[kept, point]
    return seen[inside], seen[~inside]


# ── labels by lot ─────────────────────────────────────────────────────────────────────────────────────────────────────

RANDOM_LABELS = LabelledData(
    (torch.rand(480, 60, generator=stream(0, "bits")) < 0.3).float(),
    torch.randint(4, (480,), generator=stream(0, "classes")),
)
"""480 points of 60 random bits, each with one of four classes by lot: a network that fits them has memorised them."""


# ── small networks, windows and functions ─────────────────────────────────────────────────────────────────────────────


SQUARE = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
SHAPES = ((2, 9, 2), (2, 6, 5, 2), (2, 5, 4, 3, 3), (2, 4, 4, 4, 4, 2))


def network(widths: tuple[int, ...], seed: int, *, models: tuple[int, ...] = ()) -> Mlp:
    return mlp.initial(models, widths, generator=stream(seed, "network"))


def points(count: int, dimension: int, seed: int = 0) -> Tensor:
    return gaussian((count, dimension), generator=stream(seed, "points"))


def directions(count: int, dimension: int, seed: int = 0) -> Tensor:
    drawn = gaussian((count, dimension), generator=stream(seed, "directions"))
    return drawn / drawn.norm(dim=-1, keepdim=True)


def one_layer(normals: list[list[float]], offsets: list[float], outputs: list[list[float]] | None = None) -> Mlp:
    """A network with these hyperedges."""
    kind = torch.float64
    rows = outputs if outputs is not None else [[1.0] * len(normals), [-1.0] * len(normals)]
    return Mlp(
        (torch.tensor(normals, dtype=kind), torch.tensor(rows, dtype=kind)),
        (torch.tensor(offsets, dtype=kind), torch.zeros(len(rows), dtype=kind)),
    )


def piecewise(nodes, values, left=0.0, right=0.0) -> PiecewiseLinear:
    """The function with these values at the nodes, and these slopes outside."""
    return PiecewiseLinear(*(torch.tensor(part, dtype=DTYPE) for part in (nodes, values, left, right)))


def half_space(dimension: int = 2, *, at: float = 0.0) -> Mlp:
    """Label 1 where the first coordinate is above `at`, affine wherever tests look."""
    weights = torch.eye(1, dimension, dtype=DTYPE), doubles([0.0], [1.0])
    return Mlp(weights, (doubles(1e3), doubles(0.0, -1e3 - at)))
