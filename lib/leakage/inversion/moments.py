r"""Moments of a gradient over Gaussian weights, which estimate sums of powers of the inputs by Stein's lemma.

With rows $w_j \sim N(0, I_d)$ the moment of order p estimates $s_p \sum_i r_i x_i^{\otimes p}$, where
$s_p = \E\,\sigma^{(p)}(\lVert x \rVert z)$ is `hermite.moment`. Orders 2 and 3 are applied to vectors of
$\R^d$; orders 3 and 4 are also available as tensors in a small basis. A tensor over $\R^d$ is never formed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import ClassVar

import torch
from jaxtyping import Float
from numpy.polynomial.hermite_e import herme2poly
from torch import Tensor
from torch.nn.functional import one_hot

from leakage.inversion.observation import Observation


@dataclass(frozen=True, eq=False)
class Moments(ABC):
    r"""Moments of one gradient, made by `from_outputs` or `from_hidden`; `first` is the moment of order 1."""

    weights: Float[Tensor, "m d"]
    first: Float[Tensor, " d"]
    _gradient_slots: ClassVar[int]  # slots of a tensor that the gradient itself fills

    @abstractmethod
    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        r"""The moment of order 2 times `vectors`; it estimates $s_2 \sum_i r_i x_i x_i^\top$."""

    @abstractmethod
    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        r"""The moment of order 3, contracted with the direction a in one slot, times `vectors`.

        It estimates $s_3 \sum_i r_i (a^\top x_i)\, x_i x_i^\top$.
        """

    @abstractmethod
    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m s"], Float[Tensor, "m b"]]:
        """The gradient of each neuron, divided by m, and the weights, both in coordinates of `basis`."""

    def tensor(self, basis: Float[Tensor, "d b"], *, order: int = 3) -> Float[Tensor, "b b b *b"]:
        r"""The symmetric moment of order 3 or 4, with every slot projected onto an orthonormal basis V.

        It estimates $s_p \sum_i r_i (V^\top x_i)^{\otimes p}$ in $O(m d b + m b^p)$ operations, by

        $$ \operatorname{sym} \sum_k (-1)^k \frac{q!}{k!\,(q - 2k)!\,2^k}\, M_{p - 2k} \otimes I^{\otimes k}, $$

        where $M_l$ are the moments of monomials. q is p for `from_outputs`, and p - 1 for `from_hidden`, where the
        gradient fills one slot.
        """
        degree, size = order - self._gradient_slots, basis.shape[1]
        gradient, weights = self._factors(basis)
        identity = torch.eye(size, dtype=basis.dtype, device=basis.device)
        total = torch.zeros((size,) * order, dtype=basis.dtype, device=basis.device)
        hermite = herme2poly([0] * degree + [1])  # by the power of the monomial
        for pairs in range(degree // 2 + 1):
            power = degree - 2 * pairs
            term = float(hermite[power]) * _monomial_moment(gradient, weights, degree=power, slots=order - 2 * pairs)
            for _ in range(pairs):
                term = torch.tensordot(term, identity, dims=0)
            total = total + term
        return symmetrised(total)

    def fit_tensor(self, basis: Float[Tensor, "d b"], *, order: int = 3) -> Float[Tensor, "b b b *b"]:
        r"""What `tensor` estimates, by least squares instead of averages.

        Fits the gradient of the neurons by a polynomial of degree q in $V^\top w$ and returns the symmetric part of its
        q-th derivative. Its expectation under Gaussian weights is that of the moment, but the terms of lower degree
        add no noise. In the exact span the fit is exact for polynomials of this degree.

        Source: not in Wang et al.
        """
        degree = order - self._gradient_slots
        gradient, weights = self._factors(basis)
        derivatives = _top_derivatives(weights, len(gradient) * gradient, degree=degree)
        return symmetrised(derivatives.reshape((basis.shape[1],) * order))


@dataclass(frozen=True, eq=False)
class OutputMoments(Moments):
    r"""Moments $\frac1m \sum_j g_j H_p(w_j)$ of `values`: g, or g without the part that is linear in w."""

    _gradient_slots = 0
    values: Float[Tensor, " m"]

    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        return self._second_power @ vectors - self.values.mean() * vectors

    @cached_property
    def _second_power(self) -> Float[Tensor, "d d"]:
        r"""$\frac1m \sum_j g_j w_j w_j^\top$, formed once, since an eigenvector takes tens of products with it."""
        return self.weights.mT @ (self.values.unsqueeze(-1) * self.weights) / len(self.weights)

    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        scaled = self.values * (self.weights @ direction)
        total = self.weights.mT @ (scaled.unsqueeze(-1) * (self.weights @ vectors))
        linear = self.weights.mT @ self.values / len(self.weights)
        return total / len(self.weights) - _trace_terms(linear, vectors, direction)

    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m 1"], Float[Tensor, "m b"]]:
        return self.values.unsqueeze(-1) / len(self.values), self.weights @ basis


@dataclass(frozen=True, eq=False)
class HiddenMoments(Moments):
    r"""Moments $\operatorname{sym} \sum_j G_j \otimes H_{p-1}(w_j)$ of the gradient G of the hidden weights.

    G contains the $1/m$ of the network already, so that these are sums and not means. `rows` may be centred.
    """

    _gradient_slots = 1
    rows: Float[Tensor, "m d"]

    def second(self, vectors: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
        return (self._product @ vectors + self._product.mT @ vectors) / 2

    @cached_property
    def _product(self) -> Float[Tensor, "d d"]:
        return self.rows.mT @ self.weights

    def third(self, vectors: Float[Tensor, "d k"], direction: Float[Tensor, " d"]) -> Float[Tensor, "d k"]:
        weights, gradient = self.weights @ vectors, self.rows @ vectors
        w_a, g_a = (self.weights @ direction).unsqueeze(-1), (self.rows @ direction).unsqueeze(-1)
        total = self.rows.mT @ (w_a * weights) + self.weights.mT @ (w_a * gradient + g_a * weights)
        return (total - _trace_terms(self.rows.sum(0), vectors, direction)) / 3

    def _factors(self, basis: Float[Tensor, "d b"]) -> tuple[Float[Tensor, "m b"], Float[Tensor, "m b"]]:
        return self.rows @ basis, self.weights @ basis


def from_outputs(observation: Observation, *, centre: bool = True) -> OutputMoments:
    r"""The moments of g, the gradient of the output weights.

    Hermite polynomials of order 2 and more are uncorrelated with $(1, w)$, so that the part of g that is linear in w
    only adds noise. `centre` removes it by least squares, which leaves a relative bias of about $d/m$. Without it the
    estimators are unbiased and those of the paper.

    Source: Wang et al., (4.2)-(4.3), (5.5), (5.7), Remarks 3 and 4; centring is not in the paper.
    """
    values, weights = observation.outputs, observation.weights
    assert values is not None
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

    The rows of G share the large mean $\frac1m \sum_i r_i \E[\sigma'] x_i$, which adds nothing to the moments of order
    2 and more. `centre` subtracts it, at a relative bias of $1/m$. Without it the estimators are unbiased; that of
    order 3 is then the paper's, and the others follow its pattern.

    Source: Wang et al., Appendix B; orders 2 and 4, contractions and centring are not in the paper.
    """
    rows = observation.hidden
    assert rows is not None
    return HiddenMoments(observation.weights, rows.sum(0), rows - rows.mean(0) if centre else rows)


def symmetrised(tensor: Tensor) -> Tensor:
    """The mean of a tensor over all orders of its axes."""
    orders = list(permutations(range(tensor.ndim)))
    return torch.stack([tensor.permute(order) for order in orders]).mean(0)


def _trace_terms(linear: Tensor, vectors: Tensor, direction: Tensor) -> Tensor:
    """The lower terms of the Hermite polynomial of order 3: (c·a) v + c (a·v) + a (c·v) for the linear moment c."""
    crossed = torch.outer(linear, vectors.mT @ direction) + torch.outer(direction, vectors.mT @ linear)
    return (linear @ direction) * vectors + crossed


def _monomial_moment(
    gradient: Float[Tensor, "m s"], weights: Float[Tensor, "m b"], *, degree: int, slots: int
) -> Float[Tensor, "*b"]:
    r"""$\sum_j \gamma_j \otimes u_j^{\otimes \text{degree}}$, as a product of two matrices."""
    half = degree // 2
    right = _monomials(torch.ones_like(weights[:, :1]), weights, degree - half)
    return (_monomials(gradient, weights, half).mT @ right).reshape((weights.shape[1],) * slots)


def _monomials(start: Float[Tensor, "n s"], factors: Float[Tensor, "n b"], degree: int) -> Float[Tensor, "n _"]:
    """Row by row, `start` times every product of `degree` factors."""
    for _ in range(degree):
        start = (start.unsqueeze(-1) * factors.unsqueeze(-2)).flatten(1)
    return start


def _top_derivatives(weights: Float[Tensor, "m b"], values: Float[Tensor, "m s"], *, degree: int) -> Tensor:
    """The derivatives of order `degree` of the polynomial of this degree that fits `values` best, (s, b, …, b)."""
    size, indices = weights.shape[1], torch.arange(weights.shape[1], device=weights.device)
    multisets = [torch.combinations(indices, power, with_replacement=True) for power in range(1, degree + 1)]
    features = [torch.stack([weights[:, axis] for axis in axes.mT]).prod(0) for axes in multisets]
    fit = _least_squares(torch.cat([torch.ones_like(weights[:, :1]), *features], dim=1), values)
    highest = multisets[-1]
    # The derivative of a monomial of powers p is Π p!, in every order of its variables.
    multiplicities = one_hot(highest, size).sum(1).to(weights)
    derivatives = fit[-len(highest) :].mT * torch.lgamma(multiplicities + 1).sum(1).exp().round()
    found = weights.new_empty(values.shape[1], *[size] * degree)
    for order in permutations(range(degree)):
        found[(slice(None), *highest[:, list(order)].mT)] = derivatives
    return found


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
