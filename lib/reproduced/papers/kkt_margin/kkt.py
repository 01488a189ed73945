r"""The KKT conditions of the maximum-margin problem, and the multipliers of a network that meet them best.

With $\tilde x = (x, 1)$, $\tilde w_j = (w_j, b_j)$, $Z_{ij} = \tilde w_j^\top \tilde x_i$ and $q_i = y_i \Phi(x_i)$,
a KKT point of $\min \frac12 \lVert\theta\rVert^2$ subject to $q_i \ge m$ has $\lambda_i \ge 0$ and
$s_{ij} \in \partial [\cdot]_+ (Z_{ij})$ with

$$ \tilde w_j = v_j \sum_i \lambda_i y_i s_{ij} \tilde x_i, \qquad v_j = \sum_i \lambda_i y_i [Z_{ij}]_+, \qquad
   \lambda_i (q_i - m) = 0. $$

Gradient descent leaves neurons on the kinks $Z_{ij} = 0$, where s may be anything in [0, 1]. A check that fixes s there
finds a residual that training never removes. Leading dimensions are independent networks and training sets.
"""

import itertools
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from scipy.optimize import nnls
from torch import Tensor

from reproduced.papers.kkt_margin.two_layer import TwoLayer, cosine

_ROUNDS = 100  # at most; 2 in many dimensions, 3 to 6 in few
_SWEEPS = 10  # in one round
_KINKS = 600  # up to this many, all subgradients are found at once, in under a second
_STIFFNESS = 1e4  # of the equations there, in units of the largest gradient: they hold to its inverse square
# The search ends where the squared distance d² exceeds a lower bound of the minimum by less than _SETTLED d² plus
# _ROUNDING ‖θ‖², or, where it no longer falls, by less than _STUCK ‖θ‖².
_SETTLED = 1e-5
_ROUNDING = 1e-14
_STUCK = 1e-6


@dataclass(frozen=True, eq=False)
class KktConditions:
    r"""The best multipliers of one network (or of a batch), and how far the conditions are from being met.

    With few neurons or in few dimensions several multipliers can meet the first two conditions equally well. These are
    one choice; another may have less slackness.

    Attributes:
        multipliers, subgradients: $\lambda_i$ and $s_{ij}$.
        residual: $\lVert \theta - \hat\theta \rVert / \lVert\theta\rVert$ with the right-hand sides $\hat\theta$.
        cosine: of the angle between $\theta$ and $\hat\theta$.
        slackness: $\sum_i \lambda_i (q_i - m) / (m \sum_i \lambda_i)$; 0 at a KKT point.
        margin: $m = \min_i q_i$.
    """

    multipliers: Float[Tensor, "*b n"]
    subgradients: Float[Tensor, "*b n k"]
    residual: Float[Tensor, "*b"]
    cosine: Float[Tensor, "*b"]
    slackness: Float[Tensor, "*b"]
    margin: Float[Tensor, "*b"]


def check_kkt(
    model: TwoLayer, points: Float[Tensor, "*b n d"], labels: Float[Tensor, "*b n"], *, kink_tolerance: float = 1e-2
) -> KktConditions:
    r"""Minimise $\lVert\theta - \hat\theta\rVert$ over all multipliers and all subgradients at the kinks.

    Source: the conditions (2)–(5) and (7)–(9) of Smorodinsky et al. The paper allows any $s_{ij} \in [0, 1]$ where
    $Z_{ij} = 0$; here a pair counts as a kink when $|Z_{ij}| \le \epsilon \lVert\tilde w_j\rVert
    \lVert\tilde x_i\rVert$ with the tolerance ε.

    Args:
        kink_tolerance: ε; at 0 only exact zeros are kinks.
    """
    fits = labels * model(points)
    margin = fits.amin(-1)
    pairs = _pairs(model, points, labels, kink_tolerance)
    batch = labels.shape[:-1]
    solutions = [pairs[index].solve() for index in itertools.product(*map(range, batch))]
    multipliers, mu = (torch.stack(part).view(*batch, *part[0].shape) for part in zip(*solutions, strict=True))
    hidden, outputs = pairs.parameters(multipliers, mu)
    distance = (hidden - pairs.hidden).square().sum((-2, -1)) + (outputs - model.outputs).square().sum(-1)
    return KktConditions(
        multipliers=multipliers,
        subgradients=torch.where(multipliers[..., None] > 0, mu / multipliers[..., None], pairs.on.to(mu)),
        residual=(distance / model.squared_norm()).sqrt(),
        cosine=cosine(TwoLayer(hidden[..., :-1], hidden[..., -1], outputs), model),
        slackness=(multipliers * (fits - margin.unsqueeze(-1))).sum(-1) / (margin * multipliers.sum(-1)),
        margin=margin,
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    r"""Least squares for $\lambda_i$ and $\mu_{ij} = \lambda_i s_{ij}$, jointly convex in both.

    Two kinds of steps alternate until no direction leads downhill. A sweep gives each point its best $\lambda_i$ and
    $\mu_{ij}$ with the others fixed: fast in many dimensions, where points hardly interact. A combination is the
    non-negative least-squares fit of $\theta$ by the gradients $y_i \nabla\Phi(x_i)$, with the subgradients found so
    far and with those of steepest descent: it ends after finitely many steps. In few dimensions these may be hundreds,
    because rounding chooses the steepest subgradient where a slope is 0. There kinks are few, and if the first
    combination is not enough, all multipliers are fitted at once.
    """

    hidden: Float[Tensor, "*b k e"]  # w̃_j
    outputs: Float[Tensor, "*b k"]
    lifted: Float[Tensor, "*b n e"]  # y_i x̃_i
    kernel: Float[Tensor, "*b n n"]  # their inner products
    height: Float[Tensor, "*b n k"]  # y_i [Z_ij]_+
    pull: Float[Tensor, "*b n k"]  # y_i Z_ij v_j
    kink: Bool[Tensor, "*b n k"]
    on: Bool[Tensor, "*b n k"]  # and not on the kink

    def __getitem__(self, index: tuple[int, ...]) -> "_Pairs":
        return _Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    def parameters(self, multipliers: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
        r"""$\hat\theta$: the hidden layer and the output weights of the right-hand sides."""
        hidden = self.outputs.unsqueeze(-1) * (mu.mT @ self.lifted)
        return hidden, (multipliers.unsqueeze(-2) @ self.height).squeeze(-2)

    def solve(self) -> tuple[Tensor, Tensor]:
        r"""The optimal $\lambda$ and $\mu$ of one network."""
        size = self.hidden.square().sum() + self.outputs.square().sum()
        multipliers, mu = torch.zeros_like(self.height[:, 0]), torch.zeros_like(self.height)
        rows, patterns, before = torch.arange(0), mu[:0], torch.inf
        for rounds_left in reversed(range(_ROUNDS)):
            for _ in range(_SWEEPS):
                for i in range(len(multipliers)):
                    self._update(i, multipliers, mu)
            steepest, excess, distance = self._slopes(multipliers, mu)
            stuck = excess <= _STUCK * size and (distance > 0.99 * before or not rounds_left)
            if stuck or excess <= _SETTLED * distance + _ROUNDING * size:
                return multipliers, mu
            before = distance
            if rounds_left == _ROUNDS - 2 and int(self.kink.sum()) <= _KINKS:
                multipliers, mu = self._fit_all()
                continue
            used = (multipliers > 0).nonzero().squeeze(-1)
            subgradients = mu[used] / multipliers[used, None]
            rows = torch.cat([rows, used, torch.arange(len(multipliers))])
            patterns = torch.cat([patterns, subgradients, steepest])
            shares = _nonnegative(*self._gradients(rows, patterns, self.height[rows]))
            rows, patterns, shares = rows[shares > 0], patterns[shares > 0], shares[shares > 0]
            multipliers = torch.zeros_like(multipliers).index_add(0, rows, shares)
            mu = torch.zeros_like(mu).index_add(0, rows, shares[:, None] * patterns)
        raise RuntimeError(
            f"`check_kkt` did not settle in {_ROUNDS} rounds: {float(excess / size):.1e} above the minimum."
        )

    def _update(self, i: int, multipliers: Tensor, mu: Tensor) -> None:
        r"""Give point i its best $\lambda_i$ and $\mu_{ij}$, in place, with those of all others fixed.

        Without constraints, $\mu_{ij} = c_j$ would be best. An active neuron has $\mu_{ij} = \lambda_i$ and one on the
        kink $\mu_{ij} = \min(\max(c_j, 0), \lambda_i)$, so that

        $$ \lambda_i = \frac{\beta + \lVert\tilde x_i\rVert^2 \sum_j v_j^2 c_j}
                            {\alpha + \lVert\tilde x_i\rVert^2 \sum_j v_j^2} $$

        with α and β from the output weights, and sums over the active neurons and those on the kink with
        $c_j > \lambda_i$. Adding neurons by decreasing $c_j$, the quotient grows until that set is complete and then
        falls: $\lambda_i$ is its maximum.
        """
        squares, height, on, kink = self.outputs.square(), self.height[i], self.on[i], self.kink[i]
        stiffness = self.kernel[i, i] * squares
        push = self.pull[i] - squares * (self.kernel[i] @ mu) + stiffness * mu[i]
        gap = self.outputs - multipliers @ self.height + multipliers[i] * height
        wanted = torch.where(kink & (stiffness > 0), push / stiffness, 0.0)
        order = kink.nonzero().squeeze(-1)
        order = order[wanted[order].argsort(descending=True)]
        numerators = torch.cat([(height @ gap + (push * on).sum())[None], push[order]]).cumsum(0)
        denominators = torch.cat([(height @ height + (stiffness * on).sum())[None], stiffness[order]]).cumsum(0)
        best = (numerators / denominators).amax().clamp_min(0)
        multipliers[i], mu[i] = best, best * on + torch.minimum(wanted.clamp_min(0), best) * kink

    def _slopes(self, multipliers: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""The steepest subgradients of every point, a bound of the excess over the minimum, the squared distance."""
        hidden, outputs = self.parameters(multipliers, mu)
        gaps = hidden - self.hidden, outputs - self.outputs
        slopes = self.outputs * (self.lifted @ gaps[0].mT)
        base = self.height @ gaps[1]
        steepest = (self.on | (self.kink & (slopes < 0))).to(slopes)
        downhill = (base + (slopes * steepest).sum(-1)).clamp_max(0).amin()
        along = (multipliers * base).sum() + (mu * slopes).sum()
        excess = along.abs() - downhill * multipliers.sum()
        return steepest, excess, gaps[0].square().sum() + gaps[1].square().sum()

    def _fit_all(self) -> tuple[Tensor, Tensor]:
        r"""All $\lambda_i$ and $\mu_{ij}$ in one fit; at kinks $\mu_{ij} + \nu_{ij} = \lambda_i$ is a stiff equation.

        Source: C. L. Lawson, R. J. Hanson (1974), Solving Least Squares Problems, chapter 22.
        """
        point, neuron = self.kink.nonzero(as_tuple=True)
        count, kinks = len(self.height), len(point)
        one = torch.nn.functional.one_hot(neuron, self.height.shape[1]).to(self.height)
        rows = torch.cat([torch.arange(count), point])
        heights = torch.cat([self.height, torch.zeros_like(one)])
        gradients, target = self._gradients(rows, torch.cat([self.on.to(one), one]), heights)
        owner = torch.nn.functional.one_hot(point, count).to(one)
        unit, zeros = torch.eye(kinks).to(one), target.new_zeros((len(target), kinks))
        equations = _STIFFNESS * gradients.norm(dim=0).amax() * torch.cat([owner, -unit, -unit], dim=1)
        system = torch.cat([torch.cat([gradients, zeros], dim=1), equations])
        found = _nonnegative(system, torch.cat([target, target.new_zeros(kinks)]))
        multipliers, mu = found[:count], found[:count, None] * self.on
        mu[point, neuron] = torch.minimum(found[count : count + kinks], multipliers[point])
        return multipliers, mu

    def _gradients(self, rows: Tensor, patterns: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
        r"""The gradients of these points with these subgradients as columns, and $\theta$ in the same coordinates."""
        axes = torch.linalg.svd(self.lifted, full_matrices=False).Vh  # the span of the gradients
        layer = (patterns * self.outputs).unsqueeze(-1) * (self.lifted @ axes.mT)[rows].unsqueeze(-2)
        return (
            torch.cat([layer.flatten(1), heights], dim=-1).mT,
            torch.cat([(self.hidden @ axes.mT).flatten(), self.outputs]),
        )


def _nonnegative(columns: Tensor, target: Tensor) -> Tensor:
    """The non-negative combination of columns closest to the target."""
    basis, triangle = torch.linalg.qr(columns)
    shares, _ = nnls(triangle.numpy(), (target @ basis).numpy(), maxiter=100 * columns.shape[1])
    return torch.from_numpy(shares).to(columns)


def _pairs(model: TwoLayer, points: Tensor, labels: Tensor, kink_tolerance: float) -> _Pairs:
    hidden = torch.cat([model.weights, model.biases.unsqueeze(-1)], dim=-1)
    lifted = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1) * labels.unsqueeze(-1)
    signed = lifted @ hidden.mT
    Z = labels.unsqueeze(-1) * signed
    kink = Z.abs() <= kink_tolerance * lifted.norm(dim=-1, keepdim=True) * hidden.norm(dim=-1).unsqueeze(-2)
    return _Pairs(
        hidden=hidden,
        outputs=model.outputs,
        lifted=lifted,
        kernel=lifted @ lifted.mT,
        height=labels.unsqueeze(-1) * Z.clamp_min(0),
        pull=signed * model.outputs.unsqueeze(-2),
        kink=kink,
        on=(Z > 0) & ~kink,
    )
