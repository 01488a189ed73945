"""Moments equal their definition, estimate what Stein's lemma says, and never need a tensor over the whole space."""

import pytest
import torch

from leakage.draws import gaussian
from leakage.inversion.activations import activation
from leakage.inversion.moments import from_hidden, from_outputs, symmetrised
from leakage.inversion.observation import Observation
from planted import draw_batch, hermite_tensor
from reproduced.runtime import stream

D, M = 4, 300
SOURCES = {"outputs": from_outputs, "hidden": from_hidden}
SLOTS = "abcd"


def any_gradient(d=D, m=M, seed=0):
    """An observation of noise: the definitions do not care where a gradient comes from."""
    weights, hidden = (gaussian((m, d), generator=stream(seed, name)) for name in ("weights", "hidden"))
    outputs = gaussian((m,), generator=stream(seed, "outputs"))
    return Observation(weights, activation("tanh"), outputs=outputs, hidden=hidden)


def dense(observation, source, order):
    """The moment as a tensor over the whole space, from its definition."""
    if source == "outputs":
        terms = observation.outputs.reshape(-1, *[1] * order) * hermite_tensor(observation.weights, order)
        return terms.mean(0)
    slots = SLOTS[: order - 1]
    raised = hermite_tensor(observation.weights, order - 1)
    return symmetrised(torch.einsum(f"nz,n{slots}->z{slots}", observation.hidden, raised))


def projected(tensor, basis):
    for _ in range(tensor.ndim):
        tensor = torch.tensordot(tensor, basis, dims=([0], [0]))
    return tensor


@pytest.mark.parametrize("source", SOURCES)
def test_moments_are_those_of_the_definition(source):
    seen, generator = any_gradient(), stream(0, "vectors")
    found = SOURCES[source](seen, centre=False)
    vectors, direction = gaussian((D, 3), generator=generator), gaussian((D,), generator=generator)
    size = dense(seen, source, 4).abs().max()
    close = {"rtol": 0, "atol": float(1e-13 * size)}  # rounding of sums of 300 terms
    torch.testing.assert_close(found.first, dense(seen, source, 1), **close)
    torch.testing.assert_close(found.second(vectors), dense(seen, source, 2) @ vectors, **close)
    torch.testing.assert_close(found.third(vectors, direction), dense(seen, source, 3) @ direction @ vectors, **close)
    for side in (1, 3):
        basis = torch.linalg.qr(vectors).Q[:, :side]
        for order in (3, 4):
            expected = projected(dense(seen, source, order), basis)
            torch.testing.assert_close(found.tensor(basis, order=order), expected, **close)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("centre", [True, False])
def test_a_gradient_that_ignores_the_weights_has_no_moments(source, centre):
    d, m = 3, 20_000
    found = SOURCES[source](any_gradient(d, m), centre=centre)
    scale = m ** (-0.5 if source == "outputs" else 0.5)
    tensor = found.tensor(torch.eye(d, dtype=torch.float64), order=4) / scale
    assert tensor.abs().max() < 6 * 24**0.5  # standard deviations: those of H4 are at most √4!


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_a_turn_of_the_space_turns_the_moments(source, centre):
    seen, of = draw_batch("elu", 2, 5, 200).observation, SOURCES[source]
    turn = torch.linalg.qr(gaussian((5, 5), generator=stream(0, "turn"))).Q
    turned = Observation(seen.weights @ turn, seen.activation, outputs=seen.outputs, hidden=seen.hidden @ turn)
    basis = torch.eye(5, 3, dtype=torch.float64)
    one, other = of(seen, centre=centre), of(turned, centre=centre)
    torch.testing.assert_close(other.second(turn.mT @ basis), turn.mT @ one.second(basis))
    torch.testing.assert_close(other.third(turn.mT @ basis, turn[0]), turn.mT @ one.third(basis, basis[:, 0]))
    torch.testing.assert_close(other.tensor(turn.mT @ basis, order=4), one.tensor(basis, order=4))
    torch.testing.assert_close(other.fit_tensor(turn.mT @ basis), one.fit_tensor(basis))


def test_centring_removes_what_is_linear_in_the_weights():
    seen, basis = any_gradient(), torch.eye(D, dtype=torch.float64)
    shifted = Observation(
        seen.weights,
        seen.activation,
        outputs=seen.outputs + 3 + seen.weights @ torch.arange(D, dtype=torch.float64),
        hidden=seen.hidden + torch.arange(D),
    )
    for of in SOURCES.values():
        one, other = of(seen), of(shifted)
        torch.testing.assert_close(other.second(basis), one.second(basis))
        torch.testing.assert_close(other.tensor(basis, order=4), one.tensor(basis, order=4))
    change = from_outputs(shifted).first - from_outputs(seen).first
    torch.testing.assert_close(change, torch.arange(D, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", SOURCES)
def test_regression_on_the_exact_span_is_exact_for_a_polynomial(source):
    batch = draw_batch("polynomial", 3, 30, 200)
    basis = torch.linalg.qr(batch.inputs.mT).Q
    found = SOURCES[source](batch.observation, centre=False).fit_tensor(basis)
    coordinates = batch.inputs @ basis
    truth = torch.einsum("i,ia,ib,ic->abc", 6 * batch.residuals, *[coordinates] * 3)
    torch.testing.assert_close(found, truth, rtol=0, atol=float(1e-11 * truth.norm()))  # condition of the fit: 100


def test_centring_needs_more_neurons_than_unknowns():
    with pytest.raises(ValueError, match="`centre` needs more neurons than unknowns, got 5 for 5"):
        from_outputs(any_gradient(m=5))
