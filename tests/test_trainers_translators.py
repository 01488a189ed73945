"""Translators have the gradient and the losses of PyTorch's cross-entropy, and nothing depends on padding."""

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from leakage.models.initialisation import initial
from leakage.models.transformer import PADDING, Transformer
from leakage.runtime import DTYPE, stream
from leakage.trainers import ensembles, translators
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.translators import Translators
from refusing import refusals

MODELS, WORDS = 3, (9, 7)
FORM = Transformer(8, source_words=WORDS[0], target_words=WORDS[1], layers=2, heads=2)


def networks(dtype=DTYPE):
    return Translators(FORM, initial(FORM, MODELS, generator=stream(0, "translators"), dtype=dtype))


def sentences(count, words, longest, name):
    draws = stream(0, name)
    rows = torch.randint(PADDING + 1, words, (count, longest), generator=draws)
    lengths = torch.randint(2, longest + 1, (count, 1), generator=draws)
    return torch.where(torch.arange(longest) < lengths, rows, PADDING)


TARGETS = sentences(12, WORDS[1], 6, "targets")
EXAMPLES = Examples((sentences(12, WORDS[0], 5, "sources"), TARGETS[:, :-1]), TARGETS[:, 1:])


def expected_losses(parameters, examples):
    """Of each network on examples of its own: (models, b, t), 0 at padding."""
    vectors = functional_call(FORM, parameters, examples.inputs)
    logits = vectors @ parameters["target.weight"].mT
    losses = cross_entropy(logits.flatten(0, 1), examples.targets.flatten(), reduction="none", ignore_index=PADDING)
    return losses.view(examples.targets.shape)


def test_gradients_are_those_of_the_mean_loss_over_the_words():
    ensemble = networks()
    batch = EXAMPLES[torch.tensor([[0, 3, 5], [1, 2, 3], [9, 10, 11]])]
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in ensemble.stack.parameters.items()}
    answers = (batch.targets != PADDING).sum((1, 2))
    (expected_losses(leaves, batch).sum((1, 2)) / answers).sum().backward()
    for leaf, slope in zip(leaves.values(), ensemble.gradients(batch), strict=True):
        torch.testing.assert_close(slope, leaf.grad, rtol=1e-9, atol=1e-14)  # the attention's key bias has none
        assert slope.stride() == leaf.stride()


def test_scores_are_summed_over_words_and_do_not_depend_on_the_chunks(monkeypatch):
    ensemble = networks()
    shared = Examples(
        tuple(words.expand(MODELS, -1, -1) for words in EXAMPLES.inputs), EXAMPLES.targets.expand(MODELS, -1, -1)
    )
    whole = ensemble.evaluate(EXAMPLES)
    torch.testing.assert_close(
        whole.losses, expected_losses(ensemble.stack.parameters, shared).sum(-1), rtol=1e-9, atol=1e-12
    )
    logits = (
        functional_call(FORM, ensemble.stack.parameters, shared.inputs) @ ensemble.stack.parameters["target.weight"].mT
    )
    asked = shared.targets != PADDING
    wrong = (logits.argmax(-1).view(asked.shape) != shared.targets) & asked
    torch.testing.assert_close(whole.wrong, wrong.sum(-1))
    torch.testing.assert_close(whole.answers, asked.sum(-1))
    monkeypatch.setattr(translators, "_LARGEST_EVALUATION", 1)
    parts = ensemble.evaluate(EXAMPLES)
    torch.testing.assert_close(parts.losses, whole.losses, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.wrong, whole.wrong)


def test_losses_of_float32_networks_are_judged_in_float64():
    assert networks(torch.float32).evaluate(EXAMPLES).losses.dtype == DTYPE


def test_the_initial_networks_are_left_as_they_are():
    start = networks()
    before = start.stack.clone()
    rows = torch.arange(12).expand(MODELS, -1)
    found = ensembles.train(start, EXAMPLES, rows, Recipe(2, 5, 0.01), generator=stream(0, "shuffle"))
    torch.testing.assert_close(dict(start.stack.parameters), dict(before.parameters))
    assert float(found.evaluate(EXAMPLES).losses.sum()) < float(start.evaluate(EXAMPLES).losses.sum())


def test_a_network_that_diverges_is_not_given_away():
    rows = torch.arange(12).expand(MODELS, -1)
    with pytest.raises(ValueError, match=r"a network has diverged: .* lower the `learning_rate`"):
        ensembles.train(
            networks(), EXAMPLES, rows, Recipe(1, 5, float("inf"), optimiser="sgd"), generator=stream(0, "shuffle")
        )


test_what_does_not_fit_is_refused = refusals(
    (
        lambda: Translators(Transformer(4, source_words=9, target_words=7, heads=2), networks().stack),
        "`stack` must hold",
    ),
)
