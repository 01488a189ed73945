"""The Transformer agrees with PyTorch's own; an ensemble has the losses of cross-entropy."""

import math

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from leakage.models.initialisation import initial
from leakage.precision import DTYPE
from leakage.trainers.ensembles import Examples
from reproduced.papers.blessing import transformers
from reproduced.papers.blessing.transformers import PADDING, Transformer, TransformerEnsemble, positions
from reproduced.runtime import stream


def network(width=8, *, layers=2, heads=2, words=(11, 13)):
    module = Transformer(width, source_words=words[0], target_words=words[1], layers=layers, heads=heads)
    stack = initial(module, 1, generator=stream(0, "transformer"), dtype=DTYPE)
    return module, {name: tensor[0] for name, tensor in stack.parameters.items()}


def logits(module, parameters, source, target):
    """Those of one network."""
    stacked = {name: tensor.unsqueeze(0) for name, tensor in parameters.items()}
    vectors = functional_call(module, stacked, (source.unsqueeze(0), target.unsqueeze(0)))
    return vectors.view(*target.shape, -1) @ parameters["target.weight"].mT


SOURCE = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]])
TARGET = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 3, 0]])


def test_every_network_of_a_stack_has_weights_and_sentences_of_its_own():
    module = network()[0]
    both = initial(module, 2, generator=stream(0, "two"), dtype=DTYPE).parameters
    asked = torch.stack([SOURCE, SOURCE.flip(0)]), torch.stack([TARGET, TARGET.flip(0)])
    together = functional_call(module, both, asked)
    for model in range(2):
        alone = {name: tensor[model : model + 1] for name, tensor in both.items()}
        found = functional_call(module, alone, tuple(words[model : model + 1] for words in asked))
        torch.testing.assert_close(together[model], found[0], rtol=1e-12, atol=1e-14)


def test_the_layers_are_those_of_pytorch():
    width, heads = 8, 2
    module, own = network(width, heads=heads, layers=1)
    theirs = nn.Transformer(width, heads, 1, 1, 4 * width, dropout=0.0, batch_first=True, dtype=DTYPE)
    # PyTorch's class normalises once more at the end of either side; Vaswani et al. and we do not.
    theirs.encoder.norm = theirs.decoder.norm = None
    for side, other in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        names = {"linear1": "expand", "linear2": "contract", "norm1": "attention_norm", "self_attn": "attention"}
        names |= {"norm2": "norm"} if side == "encoder" else {"norm2": "memory_norm", "norm3": "norm"}
        names |= {} if side == "encoder" else {"multihead_attn": "memory"}
        layer, state = other.layers[0], {}
        for name in dict(layer.named_parameters()):
            first, rest = name.split(".", 1)
            ours = f"{side}.0.{names[first]}"
            if rest.startswith("in_proj"):
                kind = rest.removeprefix("in_proj_")
                state[name] = torch.cat([own[f"{ours}.{part}.{kind}"] for part in ("query", "key", "value")])
            else:
                state[name] = own[f"{ours}.{rest.replace('out_proj', 'merge')}"]
        layer.load_state_dict(state)
    embedded = [
        own[f"{table}.weight"][rows] * math.sqrt(width) + positions(rows.shape[1], width, like=own["target.weight"])
        for table, rows in (("source", SOURCE), ("target", TARGET))
    ]
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padded = SOURCE == 0
    found = theirs(
        *embedded, tgt_mask=future, src_key_padding_mask=padded, memory_key_padding_mask=padded, tgt_is_causal=True
    )
    expected = logits(module, own, SOURCE, TARGET)
    torch.testing.assert_close(found @ own["target.weight"].mT, expected, rtol=1e-9, atol=1e-11)


def test_positions_are_sines_and_cosines_of_falling_rates():
    found = positions(3, 4, like=torch.zeros(0, dtype=DTYPE))
    angles = torch.tensor([[0.0, 0.0], [1.0, 0.01], [2.0, 0.02]], dtype=DTYPE)
    torch.testing.assert_close(found[:, ::2], angles.sin())
    torch.testing.assert_close(found[:, 1::2], angles.cos())


MODELS, WORDS = 3, (9, 7)
FORM = Transformer(8, source_words=WORDS[0], target_words=WORDS[1], layers=2, heads=2)


def networks(dtype=DTYPE):
    return TransformerEnsemble(FORM, initial(FORM, MODELS, generator=stream(0, "translators"), dtype=dtype))


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
    whole = ensemble.compute_losses(EXAMPLES)
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
    monkeypatch.setattr(transformers, "_CHUNK", 1)
    parts = ensemble.compute_losses(EXAMPLES)
    torch.testing.assert_close(parts.losses, whole.losses, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.wrong, whole.wrong)
