"""The span of a batch: exact from the rows of a gradient, the leading eigenvectors of its moments otherwise."""

from functools import partial

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.moments import from_hidden, from_outputs
from leakage.inversion.span import from_moments, from_rows, sharpen
from planted import draw_batch, observe
from reproduced.papers.gradient_inversion.error_laws import span_error
from reproduced.runtime import stream


def generator(name="span"):
    return stream(0, name)


def projector(basis):
    return basis @ basis.mT


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("name", "d", "m", "size"),
    [("tanh", 60, 40, 4), ("relu", 30, 500, 5), ("gelu", 700, 300, 3), ("tanh", 90, 400, 40)],
)
def test_the_rows_of_a_gradient_span_the_inputs_and_nothing_else(name, d, m, size, known):
    batch = draw_batch(name, size, d, m)
    found = from_rows(batch.observation.hidden, batch=size if known else None, generator=generator())
    assert found.basis.shape == (d, size)
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(size).double(), rtol=0, atol=1e-13)
    assert span_error(found.basis, batch.inputs) < 1e-12  # rounding, times the condition of the batch
    assert found.gap > 1e9


@pytest.mark.parametrize(("noise", "clear"), [(0.0, True), (1.0, True), (30.0, False)])
def test_the_sketch_finds_the_leading_singular_vectors(noise, clear):
    gradient = draw_batch("tanh", 3, 600, 900).observation.hidden
    gradient = gradient + noise * gradient.std() * gaussian((900, 600), generator=stream(0, "noise"))
    _, sizes, right = torch.linalg.svd(gradient, full_matrices=False)
    found = from_rows(gradient, batch=3, generator=generator())
    assert (float(sizes[2] / sizes[3]) > 1.5) is clear
    assert found.gap == pytest.approx(float(sizes[2] / sizes[3]), rel=1e-6) or noise == 0
    if clear:
        torch.testing.assert_close(projector(found.basis), projector(right[:3].mT), rtol=0, atol=1e-7)


@pytest.mark.parametrize("of", [from_outputs, from_hidden])
def test_residuals_of_either_sign_are_found(of):
    labels = torch.tensor([1.5, -0.5], dtype=torch.float64)  # s0 = 1: residuals near -1/2 and 3/2
    batch = draw_batch("polynomial", 2, 8, 40_000, bias=0.0, labels=labels)
    assert batch.residuals.prod() < 0
    found = from_moments(of(batch.observation), batch=2, generator=generator())
    assert span_error(found.basis, batch.inputs) < 0.15  # 0.06 from the outputs, 0.02 from the hidden layer


def test_a_start_is_not_seen_in_the_result():
    seen = draw_batch("polynomial", 2, 600, 3000).observation
    for route in (partial(from_rows, seen.hidden), partial(from_moments, from_hidden(seen))):
        one, other = (route(batch=2, generator=generator(name)) for name in ("one", "other"))
        torch.testing.assert_close(projector(one.basis), projector(other.basis), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["relu", "polynomial"])
def test_a_moment_of_low_rank_has_its_leading_eigenvectors_in_large_dimensions_too(name):
    """That of a hidden gradient has rank 2B, fewer than the columns of the block that is multiplied by it."""
    moment = from_hidden(draw_batch(name, 2, 600, 2000, orthonormal=True).observation)
    found = from_moments(moment, batch=2, generator=generator())
    values, vectors = torch.linalg.eigh(moment.second(torch.eye(600, dtype=torch.float64)))
    leading = vectors[:, values.abs().argsort(descending=True)[:2]]
    torch.testing.assert_close(projector(found.basis), projector(leading), rtol=0, atol=1e-7)


def test_scale_and_order_of_the_neurons_do_not_matter():
    gradient = draw_batch("tanh", 3, 20, 50).observation.hidden
    one, other = (from_rows(rows, generator=generator()) for rows in (gradient, -1e-6 * gradient.flip(0)))
    torch.testing.assert_close(projector(one.basis), projector(other.basis), rtol=0, atol=1e-12)


def test_sharpening_needs_no_direction_and_brings_the_span_nearer():
    ratios = []
    for seed in range(5):
        batch = draw_batch("tanh", 4, 60, 4000, seed=seed)
        found = from_hidden(batch.observation)
        first = from_moments(found, batch=4, order=3, generator=generator())
        ratios.append(span_error(sharpen(found, first).basis, batch.inputs) / span_error(first.basis, batch.inputs))
    assert torch.stack(ratios).median() < 0.9  # measured: 0.75


@pytest.mark.parametrize(("cause", "rank"), [("equal", 1), ("dependent", 2), ("silent", 2), ("linear", 1)])
def test_a_rank_below_the_batch_is_refused_with_the_rank(cause, rank):
    inputs = sphere(2 if cause in ("equal", "linear") else 3, 10, generator=stream(0, "inputs"))
    weights, labels = gaussian((50, 10), generator=stream(0, "weights")), None
    if cause == "equal":
        inputs[1] = inputs[0]
    if cause == "dependent":
        inputs[2] = inputs[0] + inputs[1]
    if cause == "silent":
        first = observe("tanh", inputs, weights)
        labels = torch.zeros(3, dtype=torch.float64)
        labels[0] = first.observation.predictions(inputs)[0]
    seen = observe("linear" if cause == "linear" else "tanh", inputs, weights, labels=labels).observation
    with pytest.raises(ValueError, match=f"`gradient` has rank {rank}, too low for `batch` = {len(inputs)}"):
        from_rows(seen.hidden, batch=len(inputs), generator=generator())


def test_a_batch_size_is_not_read_off_a_gradient_without_a_drop():
    with pytest.raises(ValueError, match="`batch` must be given: no drop"):
        from_rows(gaussian((60, 40), generator=stream(0, "noise")), generator=generator())
