r"""Ridge logistic regressions trained on the bi-level feature ensemble, beside the law that the theory gives them.

$x \sim N(0, \Sigma/p)$ with the eigenvalue $p/d$ of Σ on d strong features and $\eta p/(p - d)$ on the p - d weak ones,
so $\lVert x \rVert^2 \to 1 + \eta$; $y \sim \mathrm{Bernoulli}(\rho'(Z))$ with the teacher's logit
$Z = x^\top \beta^* \sim N(0, \kappa^2)$ on the strong ones. Only inner products matter to a ridge regression, so rows
come in an orthonormal basis in which they are short: the number of features may be ten million.
`penalty` is the paper's λ. Source: Tan et al. (2023), Section 2.2, Theorem 2 and Figure 2.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from leakage.data.gaussians import bartlett_factor
from leakage.draws import gaussian, uniform
from leakage.metrics.estimates import Estimate
from reproduced.papers.blessing.limit import Solution
from reproduced.papers.blessing.logistic_regression import (
    Fit,
    fit,
    leave_one_out,
    predict_with_point,
    require_convergence,
    train_with_point,
)
from reproduced.papers.blessing.output_law import OutputLaw
from reproduced.papers.blessing.proximal_operator import curvature, inverse_prox, loss

_BATCH = 2**18  # numbers in the Gram matrices trained at once: they stay in the cache


@dataclass(frozen=True)
class Bilevel:
    r"""The ensemble and the size of a training set.

    Attributes:
        n: training points.
        d: strong features, at least 1.
        p: all features, more than d.
        sigma_beta: the root mean square of the teacher's d coefficients. The paper draws them from
            $N(0, \sigma_\beta^2)$; here the length of $\beta^*$ is exact, and by symmetry only the length matters.
        eta: η > 0, the total variance of the weak features; that of the strong ones is 1.
        power: to which the eigenvalues are raised; 1/2 gives Σ if (5) defines $\Sigma^2$, as it is printed.
    """

    n: int
    d: int
    p: int
    sigma_beta: float
    eta: float = 1.0
    power: float = 1.0

    @property
    def delta(self) -> float:
        """Training points per feature, n / p."""
        return self.n / self.p

    @property
    def phi(self) -> float:
        """Features per strong feature, p / d."""
        return self.p / self.d

    @property
    def strong(self) -> float:
        """The variance of one strong feature."""
        return (self.p / self.d) ** self.power / self.p

    @property
    def weak(self) -> float:
        """The variance of one weak feature."""
        return (self.eta * self.p / (self.p - self.d)) ** self.power / self.p

    @property
    def kappa(self) -> float:
        r"""κ, the standard deviation of the teacher's logit: $\sigma_\beta$ at power 1."""
        return self.sigma_beta * math.sqrt(self.d * self.strong)

    def ridge(self, penalty: float) -> float:
        r"""$\mu = \lambda n / p$, the penalty beside the sum of the losses; a model with one more point keeps μ."""
        return penalty * self.n / self.p


class Points(NamedTuple):
    r"""Fixed points, drawn independently, in coordinates that the rows of `draw_training_sets` share.

    Attributes:
        strong: coordinates among the strong features, the teacher's direction first; standard normal units.
        weak: coordinates among the weak features.
        squares: $\lVert x_j \rVert^2$.
        teacher: $Z_j = x_j^\top \beta^*$.
        labels: $y_j$, 0 or 1.
    """

    strong: Float[Tensor, "k r"]
    weak: Float[Tensor, "k s"]
    squares: Float[Tensor, " k"]
    teacher: Float[Tensor, " k"]
    labels: Float[Tensor, " k"]


class TrainingSets(NamedTuple):
    r"""Independent training sets.

    Attributes:
        strong: coordinates of the rows among the strong features, in some orthonormal basis.
        weak: coordinates among the weak features.
        teacher: $Z_i = x_i^\top \beta^*$.
        labels: 0 or 1.
        cross: $x_i^\top x_j$ with each fixed point.
    """

    strong: Float[Tensor, "T n q"]
    weak: Float[Tensor, "T n w"]
    teacher: Float[Tensor, "T n"]
    labels: Float[Tensor, "T n"]
    cross: Float[Tensor, "T n k"]

    def gram(self) -> Float[Tensor, "T n n"]:
        """Inner products of the rows."""
        return (self.strong @ self.strong.mT).baddbmm_(self.weak, self.weak.mT)


class PointOutputs(NamedTuple):
    r"""Outputs at fixed points, one column a training set.

    Attributes:
        without: of the model trained without the point.
        outputs: of the model with the point as one more training point, by the proximal operator.
        gamma: γ of the proximal operator.
        refits: the same as `outputs`, by training again; without columns if nothing was trained again.
    """

    without: Float[Tensor, "k T"]
    outputs: Float[Tensor, "k T"]
    gamma: Float[Tensor, "k T"]
    refits: Float[Tensor, "k R"]


class Simulation(NamedTuple):
    r"""The quantities that the theory predicts, measured on trained models: one entry each.

    Attributes:
        alpha: $\beta^{*\top} \Sigma b / \beta^{*\top} \Sigma \beta^*$.
        sigma: $\sqrt{b^\top \Sigma b / p - \alpha^2 \kappa^2}$, the spread of an output that Z does not explain.
        gamma: $\mathbb E\, x_0^\top (X^\top W X + \mu I)^{-1} x_0$ over a fresh $x_0$.
        error: share of fresh points misclassified.
        accuracy: share of training points classified correctly.
        loss: mean loss of the training points.
        tpr: share of training points whose loss is below each threshold.
        fpr: the same of fresh points.
    """

    alpha: Float[Tensor, " T"]
    sigma: Float[Tensor, " T"]
    gamma: Float[Tensor, " T"]
    error: Float[Tensor, " T"]
    accuracy: Float[Tensor, " T"]
    loss: Float[Tensor, " T"]
    tpr: Float[Tensor, "T thresholds"]
    fpr: Float[Tensor, "T thresholds"]


class LeaveOneOut(NamedTuple):
    r"""Outputs at every training point of one model, with and without the point, and some by training again.

    Attributes:
        teacher: $Z_i$.
        labels: 0 or 1.
        outputs: of the model at its training points.
        without: of the models without each point, computed from the one model.
        gamma: $\gamma_i$.
        refits: `without` of the first points, by training without them.
    """

    teacher: Float[Tensor, " n"]
    labels: Float[Tensor, " n"]
    outputs: Float[Tensor, " n"]
    without: Float[Tensor, " n"]
    gamma: Float[Tensor, " n"]
    refits: Float[Tensor, " r"]


class LawDistances(NamedTuple):
    """Largest distances between the distribution functions of outputs and of the theory, point by point.

    Attributes:
        without: outputs without the point against the law of outsiders.
        refits: outputs after training with it against the law of members.
        control: the same outputs against the law of outsiders, which is wrong for them.
    """

    without: list[Estimate]
    refits: list[Estimate]
    control: list[Estimate]


def draw_points(ensemble: Bilevel, count: int, *, generator: torch.Generator, teacher: float | None = None) -> Points:
    """Draw `count` points with labels, which stay fixed while training sets vary; all with one `teacher` if given."""
    first = gaussian((count, 1), generator=generator)
    if teacher is not None:
        first = torch.full_like(first, teacher / ensemble.kappa)
    rest, weak = (
        bartlett_factor(count, columns, (), generator=generator) if count else first[:, :0]
        for columns in (ensemble.d - 1, ensemble.p - ensemble.d)
    )
    strong = torch.cat([first, rest], dim=-1)
    logits = ensemble.kappa * first.squeeze(-1)
    squares = ensemble.strong * strong.square().sum(-1) + ensemble.weak * weak.square().sum(-1)
    return Points(strong, weak, squares, logits, _draw_labels(logits, generator))


def draw_training_sets(
    ensemble: Bilevel, trials: int, *, generator: torch.Generator, points: Points | None = None
) -> TrainingSets:
    """Draw `trials` training sets whose rows of p features have at most 2n + 2k + 1 coordinates, k points being fixed.

    The basis begins with the directions of the teacher and the fixed points. The rest of the rows enters only through
    its Gram matrix, and is drawn as the Bartlett factor of that (`bartlett_factor`); with no more features than rows
    that is the plain draw.
    """
    points = draw_points(ensemble, 0, generator=generator) if points is None else points
    sizes = ((ensemble.d, points.strong.shape[-1]), (ensemble.p - ensemble.d, points.weak.shape[-1]))
    strong, weak = (_draw_rows(ensemble.n, *size, trials, generator) for size in sizes)
    cross = ensemble.strong * strong[..., : points.strong.shape[-1]] @ points.strong.mT
    cross = cross + ensemble.weak * weak[..., : points.weak.shape[-1]] @ points.weak.mT
    teacher = ensemble.kappa * strong[..., 0]
    labels = _draw_labels(teacher, generator)
    return TrainingSets(strong.mul_(ensemble.strong**0.5), weak.mul_(ensemble.weak**0.5), teacher, labels, cross)


def simulate_outputs(
    ensemble: Bilevel,
    points: Points,
    *,
    penalty: float,
    trials: int,
    generator: torch.Generator,
    refit: bool = False,
) -> PointOutputs:
    """Outputs at the fixed points of models trained on `trials` data sets, without and with each point: Figure 2."""
    parts, again = [], [[] for _ in points.labels if refit]
    for data, model in _train_batches(ensemble, trials, penalty, generator, points):
        parts.append(predict_with_point(model, data.cross, points.squares, points.labels))
        for j, column in enumerate(again):
            added = data.cross[..., j], points.squares[j], points.labels[j]
            column.append(require_convergence(train_with_point(model, data.labels, *added)).logits[:, -1])
    without, outputs, gamma = (torch.cat(column).mT.contiguous() for column in zip(*parts, strict=True))
    refits = torch.stack([torch.cat(column) for column in again]) if again else without[:, :0]
    return PointOutputs(without, outputs, gamma, refits)


def simulate(
    ensemble: Bilevel,
    *,
    penalty: float,
    trials: int,
    generator: torch.Generator,
    thresholds: Sequence[float] = (),
    fresh: int = 2000,
) -> Simulation:
    r"""α, σ, γ, errors and the rates of constant loss thresholds τ, measured on `trials` trained models.

    Given a model, $(Z, x^\top b)$ of a fresh point is Gaussian and $x^\top b = \alpha Z + \sigma \cdot N(0, 1)$: each
    of a model's `fresh` test points needs two random numbers; γ is averaged over $x_0$ in closed form.
    """
    limits = torch.tensor(list(thresholds), dtype=torch.float64)
    parts = []
    for data, model in _train_batches(ensemble, trials, penalty, generator, None):
        alpha, sigma = _overlaps(ensemble, data, model)
        teacher = ensemble.kappa * gaussian((len(alpha), fresh), generator=generator)
        outputs = alpha[:, None] * teacher + sigma[:, None] * gaussian((len(alpha), fresh), generator=generator)
        draws = uniform(teacher.shape, generator=generator, dtype=torch.float32)
        labels = (draws < torch.sigmoid(teacher)).to(teacher.dtype)
        losses, unseen = loss(model.logits, data.labels), loss(outputs, labels)
        parts.append(
            Simulation(
                alpha,
                sigma,
                _mean_gamma(ensemble, data, model),
                ((outputs > 0) != (labels > 0)).double().mean(-1),
                ((model.logits > 0) == (data.labels > 0)).double().mean(-1),
                losses.mean(-1),
                (losses.unsqueeze(-1) < limits).double().mean(-2),
                (unseen.unsqueeze(-1) < limits).double().mean(-2),
            )
        )
    return Simulation(*(torch.cat(column) for column in zip(*parts, strict=True)))


def simulate_leave_one_out(
    ensemble: Bilevel, *, penalty: float, generator: torch.Generator, refits: int = 0
) -> LeaveOneOut:
    """One trained model's outputs at its training points, and the outputs of the models without each of them."""
    data, model = next(_train_batches(ensemble, 1, penalty, generator, None))
    found, gram = leave_one_out(model), model.gram
    kept = ~torch.eye(ensemble.n, dtype=torch.bool)[:refits]
    index = kept.nonzero()[:, 1].reshape(refits, ensemble.n - 1)
    # Rows and columns of the Gram matrix without the point, one model for each.
    smaller = gram[0][index[:, :, None], index[:, None, :]]
    again = fit(smaller, data.labels[0][index], ridge=model.ridge, start=model.dual[0][index])
    refitted = (gram[0][:refits].gather(1, index) * again.dual).sum(-1)
    return LeaveOneOut(data.teacher[0], data.labels[0], model.logits[0], found.without[0], found.gamma[0], refitted)


def influence(ensemble: Bilevel, points: Points, solution: Solution, *, penalty: float) -> Float[Tensor, " k"]:
    r"""γ of each point, from the solution of the system for the ensemble and the lengths of the point's two parts:

    $$ \gamma(x) = \frac s\delta \left[ \frac{\lVert x_{\text{head}} \rVert^2}A
       + \frac{\phi - 1}{\eta B}\,\lVert x_{\text{tail}} \rVert^2 \right], \qquad A = \phi + \lambda s, \quad
       B = \phi + \lambda s (\phi - 1)/\eta . $$

    It is $x^\top (X^\top W X + \mu I)^{-1} x$ with the inverse replaced by its deterministic equivalent. Not in the
    paper, whose γ is the mean over points. The ensemble has power 1.
    """
    scale, phi, eta = solution.scale, ensemble.phi, ensemble.eta
    head = ensemble.strong * points.strong.square().sum(-1)
    tail = ensemble.weak * points.weak.square().sum(-1)
    a, b = phi + penalty * scale, phi + penalty * scale * (phi - 1) / eta
    return scale / ensemble.delta * (head / a + tail * (phi - 1) / (eta * b))


def influence_error(
    ensemble: Bilevel, law: OutputLaw, *, penalty: float, points: int, trials: int, generator: torch.Generator
) -> Float[Tensor, " k"]:
    r"""Mean over training sets of $(\gamma_n(x)/\bar\gamma - 1)^2$ at each of `points` random points.

    $\gamma_n(x) = x^\top (X^\top W X + \mu I)^{-1} x$ is that of one training set, $\bar\gamma$ that of the `law`
    of the limit, to which it tends by Theorem 6.
    """
    fixed = draw_points(ensemble, points, generator=generator)
    found = simulate_outputs(ensemble, fixed, penalty=penalty, trials=trials, generator=generator)
    return (found.gamma / law.gamma - 1).square().mean(-1)


def coefficient_distances(
    ensemble: Bilevel, solution: Solution, *, penalty: float, trials: int, generator: torch.Generator
) -> list[Estimate]:
    r"""Distances of $\hat\beta_j - \alpha\beta^*_j$ from its normal law, among the strong and among the weak features.

    By (13) with $\Gamma$ written out for the ensemble, the law is $N(0, v^2)$ with

    $$ v_{\text{head}} = \frac{s r \sqrt\phi}{\sqrt\delta\, A}, \qquad
       v_{\text{tail}} = \frac{s r}{\sqrt\delta\, B} \sqrt{\frac{\phi (\phi - 1)}{\eta}}, $$

    A and B as in `influence`. Rows have all p features here. The distance is Kolmogorov and Smirnov's over the
    coefficients of all models; the interval is Dvoretzky, Kiefer, Wolfowitz and Massart's, jointly for both. The
    coefficients of one model are independent in the limit only. Source: Tan et al. (2023), Theorem 5.
    """
    s, phi, eta = solution.scale, ensemble.phi, ensemble.eta
    a, b = phi + penalty * s, phi + penalty * s * (phi - 1) / eta
    noise = s * solution.r_squared.sqrt() / ensemble.delta**0.5
    spread = {"head": noise * phi**0.5 / a, "tail": noise * (phi * (phi - 1) / eta) ** 0.5 / b}
    scale = torch.full((ensemble.p,), ensemble.weak**0.5, dtype=s.dtype)
    scale[: ensemble.d] = ensemble.strong**0.5
    found: dict[str, list[Tensor]] = {"head": [], "tail": []}
    for _ in range(trials):
        rows = gaussian((ensemble.n, ensemble.p), generator=generator) * scale
        truth = gaussian((ensemble.d,), generator=generator)
        truth = truth * ensemble.sigma_beta * ensemble.d**0.5 / truth.norm()
        labels = _draw_labels(rows[:, : ensemble.d] @ truth, generator)
        model = require_convergence(fit(rows @ rows.mT, labels, ridge=ensemble.ridge(penalty)))
        coefficients = rows.mT @ model.dual
        found["head"].append((coefficients[: ensemble.d] - solution.alpha * truth) / spread["head"])
        found["tail"].append(coefficients[ensemble.d :] / spread["tail"])
    return [_normal_distance(torch.cat(found[part]), laws=2) for part in ("head", "tail")]


def point_laws(law: OutputLaw, gamma: Float[Tensor, " k"]) -> OutputLaw:
    """The law of the output at each point, with the point's own γ and the other constants of the limit."""
    one = torch.ones_like(gamma)
    return OutputLaw(law.alpha * one, law.sigma * one, gamma, law.kappa * one)


def law_distances(found: PointOutputs, points: Points, law: OutputLaw) -> LawDistances:
    r"""Distances of outputs at fixed points from $N(\alpha Z_j, \sigma^2)$ and from the law of its proximal operator.

    A member's output w is mapped back to the output of the model without it, $w + \gamma(\rho'(w) - y)$; both laws are
    then the standard normal one of $(h - \alpha Z_j) / \sigma$. Intervals are over training sets, by the inequality of
    Dvoretzky, Kiefer, Wolfowitz and Massart. Together, the intervals of both laws at all points cover with 95 %, so
    they are conservative.
    """
    centre, spread, laws = (law.alpha * points.teacher).unsqueeze(-1), law.sigma.unsqueeze(-1), 2 * len(points.labels)
    gamma = law.gamma.unsqueeze(-1).expand_as(found.refits)
    pulled = inverse_prox(found.refits, gamma, points.labels.unsqueeze(-1))

    def distances(outputs: Tensor) -> list[Estimate]:
        return [_normal_distance(row, laws=laws) for row in (outputs - centre) / spread]

    return LawDistances(distances(found.without), distances(pulled), distances(found.refits))


def _normal_distance(values: Float[Tensor, " n"], *, laws: int) -> Estimate:
    """The distance of `values` from the standard normal law; the intervals of so many `laws` cover together."""
    reach = math.sqrt(math.log(2 * laws / 0.05) / (2 * len(values)))
    gap = float(stats.kstest(values.numpy(), "norm").statistic)
    return Estimate(gap, max(0.0, gap - reach), min(1.0, gap + reach), n=len(values))


def _draw_rows(n: int, columns: int, explicit: int, trials: int, generator: torch.Generator) -> Tensor:
    """Rows whose first `explicit` coordinates are drawn one by one; the others only give their Gram matrix its law."""
    explicit = min(explicit, columns)
    first = gaussian((trials, n, explicit), generator=generator)
    return torch.cat([first, bartlett_factor(n, columns - explicit, (trials,), generator=generator)], dim=-1)


def _draw_labels(teacher: Tensor, generator: torch.Generator) -> Tensor:
    return (uniform(teacher.shape, generator=generator) < torch.sigmoid(teacher)).to(teacher.dtype)


def _train_batches(
    ensemble: Bilevel, trials: int, penalty: float, generator: torch.Generator, points: Points | None
) -> Iterator[tuple[TrainingSets, Fit]]:
    """Training sets and models, a batch of bounded memory at a time."""
    per_batch = max(1, _BATCH // ensemble.n**2)
    for begin in range(0, trials, per_batch):
        data = draw_training_sets(ensemble, min(per_batch, trials - begin), generator=generator, points=points)
        yield data, require_convergence(fit(data.gram(), data.labels, ridge=ensemble.ridge(penalty)))


def _overlaps(ensemble: Bilevel, data: TrainingSets, model: Fit) -> tuple[Tensor, Tensor]:
    """α and σ of each model."""
    strong, weak = ((model.dual.unsqueeze(-2) @ rows).squeeze(-2) for rows in (data.strong, data.weak))
    alpha = strong[..., 0] * ensemble.strong**0.5 / ensemble.kappa
    square = ensemble.strong * strong.square().sum(-1) + ensemble.weak * weak.square().sum(-1)
    return alpha, (square - (alpha * ensemble.kappa).square()).clamp_min(0).sqrt()


def _mean_gamma(ensemble: Bilevel, data: TrainingSets, model: Fit) -> Float[Tensor, " T"]:
    r"""$\operatorname{tr}(\Sigma (X^\top W X + \mu I)^{-1}) / p$, from the same Cholesky factor."""
    root = curvature(model.logits).sqrt().unsqueeze(-1)
    total = torch.zeros_like(model.residual)
    parts = ((data.strong, ensemble.strong, ensemble.d), (data.weak, ensemble.weak, ensemble.p - ensemble.d))
    for rows, variance, count in parts:
        explained = torch.linalg.solve_triangular(model.factor, root * rows, upper=False).square().sum((-2, -1))
        total = total + variance * (count - explained)
    return total / model.ridge
