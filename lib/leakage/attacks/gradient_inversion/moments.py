r"""Moments of a gradient over Gaussian weights, which are sums of powers of the inputs: Stein's lemma at work.

With rows $w_j \sim N(0, I_d)$ each moment of order p estimates $s_p \sum_i r_i x_i^{\otimes p}$, where
$s_p = \E\,\sigma^{(p)}(\lVert x \rVert z)$ is `leakage.theory.hermite.moment`. Orders 2 and 3 act on vectors of $\R^d$,
orders 3 and 4 are given in a basis of few dimensions; no tensor over $\R^d$ is ever made. Nothing here is random, and
nothing divides by $s_p$.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import ClassVar

import torch
from jaxtyping import Float
from numpy.polynomial.hermite_e import herme2poly
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.attacks.gradient_inversion.products import Parts, parts, squares, squares_times

_ROWS = 8192  # neurons at a time where an array has several numbers for each pair of basis vectors


@dataclass(frozen=True, eq=False)
class Moments(ABC):
    r"""Moments of one gradient; `from_outputs` and `from_hidden` make them.

    Attributes:
        weights: W, the neurons' weights.
        first: the moment of order 1, which estimates $s_1 \sum_i r_i x_i$.
    """

    weights: Float[Tensor, "m d"]
    first: Float[Tensor, " d"]
    _filled: ClassVar[int]  # slots of a tensor that the gradient itself fills

    @abstractmethod
    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        r"""The moment of order 2 times `vectors`; it estimates $s_2 \sum_i r_i x_i x_i^\top$."""

    @abstractmethod
    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        r"""The moment of order 3, one slot filled with the direction a, times `vectors`.

        It estimates $s_3 \sum_i r_i (a^\top x_i)\, x_i x_i^\top$.
        """

    @abstractmethod
    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m s"], Float[Tensor, "m b"]]:
        """What the gradient contributes to each neuron's tensor, in coordinates of `basis`, and the weights in them."""

    def tensor(self, basis: Float[Tensor, "d b"], *, order: int = 3) -> Float[Tensor, "b b b *b"]:
        r"""The symmetric moment of order 3 or 4 with every slot projected onto an orthonormal basis V.

        It estimates $s_p \sum_i r_i (V^\top x_i)^{\otimes p}$ in $O(m d b + m b^p)$ operations, by

        $$ \operatorname{sym} \sum_k (-1)^k \frac{q!}{k!\,(q - 2k)!\,2^k}\, M_{p - 2k} \otimes I^{\otimes k}, $$

        where $M_l$ are the moments of monomials, and q is p from `from_outputs` and p - 1 from `from_hidden`, whose
        gradient is one of the factors.

        Raises:
            ValueError: if `order` is neither 3 nor 4, or `basis` is not d by b.
        """
        self._check(basis, order)
        degree, size = order - self._filled, basis.shape[1]
        start, inner = self._factors(basis)
        identity = torch.eye(size, dtype=basis.dtype, device=basis.device)
        total = torch.zeros((size,) * order, dtype=basis.dtype, device=basis.device)
        hermite = herme2poly([0] * degree + [1])  # by the power of the monomial
        for pairs in range(degree // 2 + 1):
            left = degree - 2 * pairs
            term = float(hermite[left]) * _monomial_moment(start, inner, degree=left, slots=order - 2 * pairs)
            for _ in range(pairs):
                term = torch.tensordot(term, identity, dims=0)
            total = total + term
        return symmetrised(total)

    def fit_tensor(self, basis: Float[Tensor, "d b"], *, order: int = 3) -> Float[Tensor, "b b b *b"]:
        r"""What `tensor` estimates, by least squares instead of averages.

        Fits what the gradient contributes by a polynomial of degree q in $V^\top w$ and returns the symmetric part of
        the q-th derivative. Its mean under Gaussian weights is that of the moment, and everything of lower degree is
        removed and not averaged away: on the exact span, the fit is exact for polynomials of this degree.

        Source: not in Wang et al.

        Raises:
            ValueError: as `tensor`; or if there are not more neurons than coefficients, $\binom{b + q}{q}$, or
                they do not determine the fit, as neurons in pairs of either sign may not.
        """
        self._check(basis, order)
        needed = math.comb(basis.shape[1] + order - self._filled, order - self._filled)
        if len(self.weights) <= needed:
            raise ValueError(
                f"`fit_tensor` needs more neurons than coefficients, got {len(self.weights)} for {needed}."
            )
        start, inner = self._factors(basis)
        derivatives = len(start) * _top_derivatives(inner, start, degree=order - self._filled)
        return symmetrised(derivatives.reshape((basis.shape[1],) * order))

    def _check(self, basis: Tensor, order: int) -> None:
        arguments.count("order", order, least=3, most=4)
        arguments.real("basis", basis, "d b", like=self.weights, d=self.weights.shape[1])


@dataclass(frozen=True, eq=False)
class OutputMoments(Moments):
    r"""Moments $\frac1m \sum_j g_j H_p(w_j)$ of the gradient g of the output weights.

    Attributes:
        values: g, or what is left of it once its own mean and linear part are gone.
    """

    _filled = 0
    values: Float[Tensor, " m"]

    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        return self._square @ vectors / len(self.weights) - self.values.mean() * vectors

    @cached_property
    def _square(self) -> Float[Tensor, "d d"]:
        """Formed once: an eigenvector takes tens of products."""
        return squares(self.weights, self.values)

    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        total = squares_times(self.weights, self.values * (self.weights @ direction), vectors)
        linear = self.weights.mT @ self.values / len(self.weights)
        return total / len(self.weights) - _traces(linear, vectors, direction)

    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m 1"], Float[Tensor, "m b"]]:
        return self.values.unsqueeze(-1) / len(self.values), self.weights @ basis


@dataclass(frozen=True, eq=False)
class HiddenMoments(Moments):
    r"""Moments $\operatorname{sym} \sum_j G_j \otimes H_{p-1}(w_j)$ of the gradient G of the hidden weights.

    G holds the $1/m$ of the network already, so that these are plain sums.

    Attributes:
        rows: G, or G less the mean of its rows.
    """

    _filled = 1
    rows: Float[Tensor, "m d"]

    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        return (self._square @ vectors + self._square.mT @ vectors) / 2

    @cached_property
    def _square(self) -> Float[Tensor, "d d"]:
        """Formed once: an eigenvector takes tens of products."""
        return self._parts.basis @ (self._parts.shares.mT @ self.weights)

    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        shares, basis = self._parts
        half = ((self.weights @ direction).unsqueeze(-1) * shares).mT @ self.weights
        crossed = basis @ (half @ vectors) + half.mT @ (basis.mT @ vectors)
        total = crossed + squares_times(self.weights, self.rows @ direction, vectors)
        return (total - _traces(self.rows.sum(0), vectors, direction)) / 3

    @cached_property
    def _parts(self) -> Parts:
        """G by its few directions, where it has few."""
        return parts(self.rows)

    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m b"], Float[Tensor, "m b"]]:
        return self.rows @ basis, self.weights @ basis


def from_outputs(observation: Observation, *, centre: bool = True) -> OutputMoments:
    r"""The moments of g, the gradient of the output weights.

    The Hermite polynomials of order 2 and more are uncorrelated with $(1, w)$, so whatever of g is linear in w only
    adds noise. `centre` removes it by least squares, which leaves a relative bias of about $d/m$; without it the
    estimators are unbiased and those of the paper.

    Source: Wang et al., (4.2)-(4.3), (5.5), (5.7), Remarks 3 and 4; centring is not in the paper.

    Raises:
        ValueError: if the observation has no `outputs`, or there are too few neurons to centre ($m \le d + 1$, or
            as few that differ in more than their signs).
    """
    values, weights = observation.outputs, observation.weights
    if values is None:
        raise ValueError("`observation` must have `outputs`, the gradient of the output weights; got None.")
    if not centre:
        return OutputMoments(weights, weights.mT @ values / len(values), values)
    if len(values) <= weights.shape[1] + 1:
        raise ValueError(
            f"`centre` needs more neurons than unknowns, got {len(values)} for {weights.shape[1] + 1}; or set it False."
        )
    design = torch.cat([torch.ones_like(values).unsqueeze(-1), weights], dim=-1)
    fit = _least_squares(design, values.unsqueeze(-1)).squeeze(-1)
    return OutputMoments(weights, fit[1:], values - design @ fit)


def from_hidden(observation: Observation, *, centre: bool = True) -> HiddenMoments:
    r"""The moments of G, the gradient of the hidden weights.

    The rows of G share the large mean $\frac1m \sum_i r_i \E[\sigma'] x_i$, which the moments of order 2 and more do
    not use: `centre` subtracts it, at a relative bias of $1/m$. Without it the estimators are unbiased; that of order
    3 is then the paper's, and the others follow its pattern.

    Source: Wang et al., Appendix B; orders 2 and 4, contractions and centring are not in the paper.

    Raises:
        ValueError: if the observation has no `hidden`.
    """
    rows = observation.hidden
    if rows is None:
        raise ValueError("`observation` must have `hidden`, the gradient of the hidden weights; got None.")
    return HiddenMoments(observation.weights, rows.sum(0), rows - rows.mean(0) if centre else rows)


def _traces(shift: Tensor, vectors: Tensor, direction: Tensor) -> Tensor:
    """What a shift c of the weights' average adds to a moment of order 3: (c·a) v + c (a·v) + a (c·v)."""
    crossed = torch.outer(shift, vectors.mT @ direction) + torch.outer(direction, vectors.mT @ shift)
    return (shift @ direction) * vectors + crossed


def symmetrised(tensor: Tensor) -> Tensor:
    """The mean of a tensor over all orders of its axes."""
    orders = list(permutations(range(tensor.ndim)))
    return torch.stack([tensor.permute(order) for order in orders]).mean(0)


def _monomial_moment(
    start: Float[Tensor, "m s"], inner: Float[Tensor, "m b"], *, degree: int, slots: int
) -> Float[Tensor, "*b"]:
    r"""$\sum_j s_j \otimes u_j^{\otimes \text{degree}}$, as products of two matrices over a few neurons at a time."""
    half = degree // 2
    blocks = [
        _monomials(left, right, half).mT @ _monomials(torch.ones_like(left[:, :1]), right, degree - half)
        for left, right in zip(start.split(_ROWS), inner.split(_ROWS), strict=True)
    ]
    return sum(blocks[1:], blocks[0]).reshape((inner.shape[1],) * slots)


def _monomials(start: Float[Tensor, "n s"], factors: Float[Tensor, "n b"], degree: int) -> Float[Tensor, "n _"]:
    """Row by row, `start` times every product of `degree` factors."""
    for _ in range(degree):
        start = (start.unsqueeze(-1) * factors.unsqueeze(-2)).flatten(1)
    return start


def _top_derivatives(inner: Float[Tensor, "m b"], values: Float[Tensor, "m s"], *, degree: int) -> Tensor:
    """The derivatives of order `degree` of the polynomial of this degree that fits `values` best, (s, b, …, b)."""
    size, device = inner.shape[1], inner.device
    features = [torch.ones_like(inner[:, :1])]
    for power in range(1, degree + 1):
        slots = _multisets(size, power, device)
        features.append(torch.stack([inner[:, slot] for slot in slots.mT]).prod(0))
    design = torch.cat(features, dim=1)
    fit = _least_squares(design, values)
    slots = _multisets(size, degree, device)
    places = torch.cartesian_prod(*[torch.arange(size, device=device)] * degree).reshape(-1, degree).sort(-1).values
    radix = size ** torch.arange(degree - 1, -1, -1, device=device)
    which = torch.searchsorted((slots * radix).sum(-1), (places * radix).sum(-1))
    orders = torch.bincount(which, minlength=len(slots))  # the coefficient of a monomial is shared by its orders
    derivative = math.factorial(degree) * fit[-len(slots) :] / orders.unsqueeze(-1)
    return derivative[which].mT.reshape(-1, *[size] * degree)


def _least_squares(design: Float[Tensor, "m c"], values: Float[Tensor, "m s"]) -> Float[Tensor, "c s"]:
    """The coefficients that fit the columns of `values` best."""
    scale = torch.linalg.vector_norm(design, dim=0)
    triangle = torch.linalg.qr(torch.cat([design / scale, values], dim=1), mode="r").R[: design.shape[1]]
    left, right = triangle.split([design.shape[1], values.shape[1]], dim=1)
    if not bool(left.diagonal().abs().min() > len(design) * torch.finfo(design.dtype).eps):
        raise ValueError(
            "`weights` do not determine the fit: too few neurons differ from each other and their mirrors."
        )
    return torch.linalg.solve_triangular(left, right, upper=True) / scale.unsqueeze(-1)


def _multisets(size: int, count: int, device: torch.device) -> Tensor:
    """All ways to pick `count` of `size` indices with repetition, as rows in lexicographic order."""
    return torch.combinations(torch.arange(size, device=device), r=count, with_replacement=True)
