"""Training in the span of the points takes the steps of autograd, stops where it should, and stays finite.

Any module takes the same plain steps by automatic differentiation, and normalised ones of its own length.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import softplus

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.margin_flow import Descent, log_loss, loss_shares, train, train_module
from reproduced.papers.kkt_margin.two_layer import TwoLayer, initial
from reproduced.runtime import stream

PLAIN = Descent(steps=1000, learning_rate=0.05)
NORMALISED = Descent(steps=1000, stability=0.3, growth=0.02)


def problem(*, batch=(), n=6, d=12, k=8, hidden_scale=0.3):
    """Networks, points and labels; with weights of some size, so that activation patterns change on the way."""
    generator = stream(0, f"problem {batch} {n} {d} {k}")
    model = initial(batch, k, d, generator=generator, hidden_scale=hidden_scale)
    labels = torch.ones((*batch, n), dtype=DTYPE)
    labels[..., ::2] = -1
    return model, gaussian((*batch, n, d), generator=generator), labels


def pieces(model):
    return model.weights, model.biases, model.outputs


def assert_same(ours, theirs, *, rtol):
    """Equal up to `rtol` of the largest entry."""
    for one, other in zip(pieces(ours), pieces(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=rtol * float(other.abs().max()))


def single(model, index):
    return TwoLayer(*(tensor[index] for tensor in pieces(model)))


def by_autograd(model, points, labels, descent):
    """The definition: every step from the gradients that autograd finds for one network."""
    parameters = pieces(model)

    def targets(parameters):
        w, b, v = parameters  # of one network, or of one for each point
        return labels * (torch.relu((w @ points.unsqueeze(-1)).squeeze(-1) + b) * v).sum(-1)

    def loss(parameters):
        return softplus(-targets(parameters)).mean()

    def normalised(parameters):
        # Each point has a copy of the network for itself: the gradients in the copies are those of the single targets.
        copies = [part.expand(len(points), *part.shape).clone().requires_grad_() for part in parameters]
        found = targets(copies)
        jacobian, q = torch.autograd.grad(found.sum(), copies), found.detach()
        share = torch.sigmoid(-q) / softplus(-q).sum()
        flat = torch.cat([part.flatten(1) for part in jacobian], dim=1)
        length = min(
            descent.stability / float(share @ flat.square().sum(1)),
            descent.growth / float(share @ (points.square().sum(1) + 1).sqrt()),
        )
        return [length * torch.einsum("n,n...->...", share, part) for part in jacobian]

    for _ in range(descent.steps):
        if descent.learning_rate is None:
            change = normalised(parameters)
        else:
            leaves = [part.detach().requires_grad_() for part in parameters]
            change = [-descent.learning_rate * part for part in torch.autograd.grad(loss(leaves), leaves)]
        parameters = tuple(part.detach() + step for part, step in zip(parameters, change, strict=True))
    return TwoLayer(*parameters)


# ── the steps ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("descent", [PLAIN, NORMALISED], ids=["plain", "normalised"])
def test_a_thousand_steps_are_those_of_autograd(descent):
    model, points, labels = problem()
    expected = by_autograd(model, points, labels, descent)
    asked = gaussian((50, 12), generator=stream(0, "asked"))
    for route in ("dual", "primal"):
        trained = train(model, points, labels, descent, route=route)
        assert trained.margin > 1  # it has fitted all labels: the steps went somewhere
        assert int(trained.steps) == 1000
        assert_same(trained.model, expected, rtol=1e-12)
        torch.testing.assert_close(trained.model(asked), expected(asked), rtol=0, atol=1e-11)
        torch.testing.assert_close(trained.margins, labels * expected(points), rtol=0, atol=1e-11)


@pytest.mark.parametrize("descent", [PLAIN, NORMALISED], ids=["plain", "normalised"])
@pytest.mark.parametrize(("n", "d"), [(6, 12), (6, 5), (9, 4), (9, 1), (1, 3)])
def test_both_routes_take_the_same_steps(descent, n, d):
    model, points, labels = problem(batch=(3,), n=n, d=d)
    short = replace(descent, steps=200)  # in which up to twenty points change sides of a neuron
    dual, primal = (train(model, points, labels, short, route=route) for route in ("dual", "primal"))
    # Rounding of two orders of summation, which a network that fits not all labels (d = 1) carries on for longer.
    assert_same(dual.model, primal.model, rtol=1e-10)
    torch.testing.assert_close(dual.margins, primal.margins, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("stability", "growth"), [(0.5, 1e6), (1e6, 0.1)])
def test_a_normalised_step_has_the_length_of_the_smaller_cap(stability, growth):
    """With one point p cancels from direction and length: the step is c ∇Φ / ‖∇Φ‖² or c₂ ∇Φ / ‖(x, 1)‖."""
    start = TwoLayer(*(torch.tensor(values, dtype=DTYPE) for values in ([[0.5]], [0.5], [3.0])))
    points, labels = torch.tensor([[2.0]], dtype=DTYPE), torch.tensor([1.0], dtype=DTYPE)
    after = train(start, points, labels, Descent(steps=1, stability=stability, growth=growth)).model
    length = min(stability / (9 * 5 + 1.5**2), growth / math.sqrt(5))
    found = [float(part) for part in pieces(after)]
    torch.testing.assert_close(found, [0.5 + length * 6, 0.5 + length * 3, 3 + length * 1.5])


def test_a_single_point_ends_at_its_known_optimum():
    r"""One point: all live neurons are parallel to (x, 1) and balanced, so that $m / \|\theta\|^2 = \|(x, 1)\| / 2$."""
    model, points, labels = problem(n=1, d=3, k=20, hidden_scale=1e-4)
    trained = train(TwoLayer(*pieces(model)[:2], 0.01 * model.outputs), points, labels, Descent(2000, margin=50.0))
    ratio = trained.margin / trained.model.squared_norm()
    half = (points.square().sum() + 1).sqrt() / 2
    # What is left of the start weighs ‖θ(0)‖²/‖θ‖² < 1e-6 here, and every product of factors is below its mean square.
    torch.testing.assert_close(ratio, half, rtol=1e-5, atol=0)
    assert float(ratio) < float(half)


# ── batches, stops, snapshots ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("route", ["dual", "primal"])
@pytest.mark.parametrize("descent", [Descent(300, 0.05), Descent(300), Descent(300, margin=3.0)], ids=str)
def test_a_network_of_a_batch_trains_as_it_does_alone(descent, route):
    model, points, labels = problem(batch=(2, 3))
    together = train(model, points, labels, descent, route=route)
    for index in ((0, 0), (1, 2)):
        alone = train(single(model, index), points[index], labels[index], descent, route=route)
        assert_same(single(together.model, index), alone.model, rtol=1e-12)
        assert int(together.steps[index]) == int(alone.steps)
        torch.testing.assert_close(together.margin[index], alone.margin, rtol=1e-11, atol=0)


def test_every_network_stops_when_it_has_its_margin():
    model, points, labels = problem(batch=(5,))
    trained = train(model, points, labels, Descent(steps=1000, margin=5.0))
    assert bool((trained.margin >= 5).all())
    assert len(set(trained.steps.tolist())) > 1
    for index, steps in enumerate(trained.steps.tolist()):
        before = train(single(model, index), points[index], labels[index], Descent(steps=steps - 1))
        assert float(before.margin) < 5


@pytest.mark.parametrize("descent", [Descent(60, 0.05), Descent(60)], ids=["plain", "normalised"])
def test_a_snapshot_is_the_network_after_that_many_steps(descent):
    model, points, labels = problem(batch=(2,))
    trained = train(model, points, labels, descent, snapshots=[0, 1, 13, 60])
    for steps, kept in zip([0, 1, 13, 60], trained.snapshots, strict=True):
        shorter = Descent(steps, descent.learning_rate)
        assert_same(kept, train(model, points, labels, shorter).model, rtol=1e-13)


def test_single_precision_is_kept_and_enough_for_plain_steps():
    model, points, labels = problem()
    exact = train(model, points, labels, PLAIN)
    short = train(TwoLayer(*(t.float() for t in pieces(model))), points.float(), labels.float(), PLAIN)
    assert short.margins.dtype == torch.float32
    # A thousand roundings of 6e-8 that add up as a random walk at best, as a drift at worst.
    torch.testing.assert_close(short.margins.double(), exact.margins, rtol=1e-4, atol=0)


# ── where training goes nowhere ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "descent", [Descent(100, 0.05, margin=1.0), Descent(100, margin=1.0)], ids=["plain", "normalised"]
)
@pytest.mark.parametrize("route", ["dual", "primal"])
def test_dead_networks_stay_dead_and_finite(descent, route):
    model, points, labels = problem(batch=(2,))
    dead = TwoLayer(0 * model.weights, torch.full_like(model.biases, -1.0), model.outputs)
    trained = train(dead, points, labels, descent, route=route)
    assert_same(trained.model, dead, rtol=1e-14)
    assert trained.margin.tolist() == [0.0, 0.0]
    assert trained.steps.tolist() == [100, 100]


# ── the loss far away from zero ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_logarithm_of_the_loss_is_exact_from_end_to_end(dtype):
    q = torch.tensor([-1e30, -1e3, -1.0, 0.0, 1.0, 10.0, 29.9, 30.1, 100.0, 1e4, 1e30], dtype=dtype)
    expected = [
        math.log(math.log1p(math.exp(-x))) if -700 < x < 30 else (-x if x > 0 else math.log(-x)) for x in q.tolist()
    ]
    rounding = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(log_loss(q), torch.tensor(expected, dtype=dtype), rtol=rounding, atol=rounding)


def test_a_pull_is_minus_the_derivative_of_the_log_loss():
    q = (4 * gaussian((5, 7), generator=stream(0, "q"))).requires_grad_()
    (derivative,) = torch.autograd.grad(softplus(-q).sum(-1).log().sum(), q)
    torch.testing.assert_close(loss_shares(q.detach()), -derivative, rtol=1e-12, atol=1e-15)


def test_margins_far_beyond_underflow_are_reached():
    """exp(-q) is 0 from q = 745 on, where a loss that is no logarithm has no gradient left."""
    assert float(train(*problem(n=3, d=8), Descent(steps=10_000, stability=1.0, margin=800.0)).margin) >= 800


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_network_that_diverged_has_not_arrived():
    model, points, labels = problem()
    with pytest.raises(ValueError, match="`descent` must have shorter steps: 1 networks diverged"):
        train(model, points, labels, Descent(steps=5, learning_rate=1e200))


# ── any module ──────────────────────────────────────────────────────────────────────────────────────────────────────


class TwoLayerModule(nn.Module):
    def __init__(self, width=8, dimension=12):
        super().__init__()
        with torch.device("meta"):
            self.hidden = nn.Linear(dimension, width)
            self.outer = nn.Linear(width, 1, bias=False)

    def forward(self, points):
        return self.outer(self.hidden(points).relu()).squeeze(-1)


MODULE = TwoLayerModule()


def as_parameters(model):
    return {"hidden.weight": model.weights, "hidden.bias": model.biases, "outer.weight": model.outputs.unsqueeze(0)}


def as_model(parameters):
    return TwoLayer(parameters["hidden.weight"], parameters["hidden.bias"], parameters["outer.weight"].squeeze(0))


def test_a_module_takes_the_plain_steps_of_the_closed_form():
    model, points, labels = problem()
    trained = train_module(MODULE, as_parameters(model), points, labels, PLAIN)
    closed = train(model, points, labels, PLAIN)
    # Rounding of 1e-16 a step, over 1,000 steps that contract near the margin.
    assert_same(as_model(trained.model), closed.model, rtol=1e-12)
    torch.testing.assert_close(trained.margins, closed.margins, rtol=1e-11, atol=0)


def test_a_normalised_step_follows_the_gradient_of_the_log_loss():
    model, points, labels = problem()
    start = as_parameters(model)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    loss = softplus(-labels * functional_call(MODULE, leaves, (points,))).mean().log()
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    steepness = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    size = math.sqrt(sum(float(tensor.square().sum()) for tensor in start.values()))
    for descent, length in (
        (Descent(steps=1, stability=1e-3, growth=1e3), 1e-3 / steepness**2),
        (Descent(steps=1, stability=1e3, growth=1e-3), 1e-3 * size / steepness),
    ):
        moved = train_module(MODULE, start, points, labels, descent).model
        for name, gradient in gradients.items():
            torch.testing.assert_close(moved[name] - start[name], -length * gradient, rtol=1e-9, atol=1e-15)


def test_a_module_stops_when_its_margin_is_reached():
    model, points, labels = problem()
    descent = replace(NORMALISED, steps=2000, growth=0.02, margin=5.0)
    trained = train_module(MODULE, as_parameters(model), points, labels, descent)
    assert float(trained.margin) >= 5
    taken = int(trained.steps)
    assert taken < 2000
    late = train_module(MODULE, as_parameters(model), points, labels, replace(descent, steps=taken - 1))
    assert float(late.margin) < 5


def test_no_step_changes_nothing_and_the_initial_parameters_are_never_changed():
    model, points, labels = problem()
    start = as_parameters(model)
    copies = {name: tensor.clone() for name, tensor in start.items()}
    still = train_module(MODULE, start, points, labels, Descent(steps=0))
    train_module(MODULE, start, points, labels, replace(PLAIN, steps=3))
    for name, tensor in start.items():
        torch.testing.assert_close(tensor, copies[name])
        torch.testing.assert_close(still.model[name], tensor)
    torch.testing.assert_close(still.margins, labels * model(points), rtol=1e-12, atol=1e-15)


def test_a_module_must_give_one_output_a_point():
    _, points, labels = problem()
    column = nn.Sequential()
    column.forward = lambda points: points[..., :1]
    with pytest.raises(ValueError, match=r"`module` must give outputs \(t,\) for points \(t, d\), got \(6, 1\)"):
        train_module(column, {}, points, labels, PLAIN)
