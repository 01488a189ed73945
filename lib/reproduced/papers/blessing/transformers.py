r"""Transformers of one width that translate sentences of word numbers, many at once, as an ensemble to be trained.

The architecture is that of Vaswani et al. (2017): an encoder and a decoder of width w with sinusoidal positions, layers
normalised after each sum, feed-forward layers of 4w neurons, and the target's word vectors used again as output
weights. There is no dropout, and nothing attends to `PADDING`. All networks are computed at once: their parameters are
stacked along a first dimension m, and the sentences of a network lie one after the other in one row of places, (m, bt).
For small networks this takes half the time of `torch.func.vmap` over a module of one network.
"""

import copy
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, layer_norm

from leakage.models.initialisation import Stack
from leakage.trainers.ensembles import ExampleLosses, Examples, concatenate, cross_entropies

_CHUNK = 50  # sentences that are evaluated at once

PADDING = 0
"""The number that fills up the rows of shorter sentences."""


class TransformerEnsemble:
    r"""A stack of Transformers: an `ensembles.Ensemble` that minimises the mean loss over all words of a batch.

    Examples have two inputs, the source (n, s) and the target so far (n, t), and as targets the next word at every
    place of it, `PADDING` where none is asked for. Each word is predicted from the right ones before it; nothing here
    searches for a translation.
    """

    def __init__(self, form: "Transformer", stack: Stack) -> None:
        self.form, self.stack = form, stack
        # Put in place once, in the same memory: `functional_call` at every step takes longer than these networks.
        self._leaves = {name: nn.Parameter(tensor) for name, tensor in stack.parameters.items()}
        self._network = copy.deepcopy(form)
        for name, leaf in self._leaves.items():
            owner, _, own_name = name.rpartition(".")
            setattr(self._network.get_submodule(owner), own_name, leaf)

    @property
    def parameters(self) -> list[Tensor]:
        """Of the stack, in the form's order."""
        return list(self.stack.parameters.values())

    def __len__(self) -> int:
        return len(self.stack)

    def clone(self) -> "TransformerEnsemble":
        """See `Ensemble.clone`."""
        self.stack.check_finite()
        return TransformerEnsemble(self.form, self.stack.clone())

    def gradients(self, batch: Examples) -> list[Tensor]:
        """See `Ensemble.gradients`."""
        targets = batch.targets.flatten(1)
        logits = (self._network(*batch.inputs) @ self._leaves["target.weight"].mT).flatten(0, 1)
        losses = cross_entropy(logits, targets.flatten(), reduction="none", ignore_index=PADDING).view(targets.shape)
        # The networks share nothing, so the gradient of the sum over them holds the gradient of each.
        total = (losses.sum(-1) / (targets != PADDING).sum(-1)).sum()
        return [slope.contiguous() for slope in torch.autograd.grad(total, list(self._leaves.values()))]

    @torch.no_grad()
    def compute_losses(self, examples: Examples) -> ExampleLosses:
        """See `Ensemble.compute_losses`: losses and mistakes are summed over the words of an example."""
        parts = []
        for first in range(0, len(examples), _CHUNK):
            some = examples[slice(first, first + _CHUNK)]
            asked = some.targets != PADDING
            vectors = self._network(*(words.expand(len(self), *words.shape) for words in some.inputs))
            logits = vectors.view(len(self), *asked.shape, -1)[:, asked] @ self._leaves["target.weight"].mT
            losses = torch.zeros(len(self), *asked.shape, dtype=torch.float64, device=logits.device)
            wrong = torch.zeros_like(losses, dtype=torch.int64)
            found = cross_entropies(logits, some.targets[asked].expand(len(self), -1))
            losses[:, asked], wrong[:, asked] = found[0], found[1].long()
            parts.append(ExampleLosses(losses.sum(-1), wrong.sum(-1), asked.sum(-1).expand(len(self), -1)))
        return concatenate(parts)


class Attention(nn.Module):
    r"""Multi-head attention: $\operatorname{softmax}(Q K^\top / \sqrt{d_h}) V$ in each of `heads` slices of w."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)

    def forward(
        self, asking: Float[Tensor, "m bt w"], asked: Float[Tensor, "m bs w"], hidden: Float[Tensor, "#mbh s #t"]
    ) -> Float[Tensor, "m bt w"]:
        r"""What each place of `asking` reads from those of `asked`; `hidden` is $-\infty$ where it must not, else 0."""
        length = hidden.shape[-2]
        steps = asking.shape[1] // (asked.shape[1] // length)
        if asking is asked:
            query, key, value = self._heads(asked, length, self.query, self.key, self.value)
        else:
            (query,), (key, value) = (
                self._heads(asking, steps, self.query),
                self._heads(asked, length, self.key, self.value),
            )
        # Keys come before queries: over the first of two short dimensions a CPU vectorises the softmax.
        scores = torch.baddbmm(hidden, key, query.mT, alpha=1 / math.sqrt(query.shape[-1]))
        found = torch.bmm(scores.softmax(-2).mT, value).view(len(asking), -1, self.heads, steps, query.shape[-1])
        return _linear(self.merge, found.transpose(-2, -3).reshape(asking.shape))

    def _heads(self, places: Float[Tensor, "m bt w"], steps: int, *layers: nn.Linear) -> tuple[Tensor, ...]:
        """The output of each layer at the places, (mbh, t, d): one matrix for every network, sentence and head."""
        weight, bias = (torch.cat([getattr(layer, part) for layer in layers], 1) for part in ("weight", "bias"))
        wide = torch.baddbmm(bias.unsqueeze(1), places, weight.mT)
        apart = wide.view(len(places), -1, steps, len(layers), self.heads, places.shape[-1] // self.heads)
        return apart.permute(3, 0, 1, 4, 2, 5).flatten(1, 3).unbind()


class Layer(nn.Module):
    """One layer of the encoder, or with `memory` one of the decoder."""

    def __init__(self, width: int, heads: int, *, memory: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        if memory:
            self.memory = Attention(width, heads)
            self.memory_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        places: Float[Tensor, "m bt w"],
        hidden: Float[Tensor, "#mbh t #t"],
        encoded: Float[Tensor, "m bs w"] | None = None,
        encoded_hidden: Float[Tensor, "#mbh s #t"] | None = None,
    ) -> Float[Tensor, "m bt w"]:
        """The layer's output; `encoded` is the encoder's, for layers with memory."""
        places = _normalised(self.attention_norm, places + self.attention(places, places, hidden))
        if encoded is not None:
            places = _normalised(self.memory_norm, places + self.memory(places, encoded, encoded_hidden))
        return _normalised(self.norm, places + _linear(self.contract, _linear(self.expand, places).relu_()))


class Transformer(nn.Module):
    r"""A vector for every next word of a target sentence, given the source sentence and the words before.

    Its products with the vectors of the target's words, `target.weight`, are the logits. With $V_s$ and $V_t$ words and
    L layers on either side there are $w (V_s + V_t) + L\,(28 w^2 + 32 w)$ parameters. They are on PyTorch's `meta`
    device; stacked ones must be put in their place before a call.

    Source: Vaswani et al. (2017), section 3; widths as in Tan et al. (2023), section F, which does not state the number
    of layers and heads and the dropout. Vaswani et al. have 6, 8 and 0.1.
    """

    def __init__(self, width: int, *, source_words: int, target_words: int, layers: int = 6, heads: int = 8) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.source = nn.Embedding(source_words, width)
            self.target = nn.Embedding(target_words, width)
            self.encoder = nn.ModuleList(Layer(width, heads, memory=False) for _ in range(layers))
            self.decoder = nn.ModuleList(Layer(width, heads, memory=True) for _ in range(layers))

    def forward(self, source: Int[Tensor, "m b s"], target: Int[Tensor, "m b t"]) -> Float[Tensor, "m bt w"]:
        """The vector for the word after each place of `target`, which must begin with a word, not with padding."""
        encoded = self._embed(self.source, source)
        padded = _forbidden((source == PADDING).repeat_interleave(self.heads, 1).flatten(0, 1), like=encoded)
        for layer in self.encoder:
            encoded = layer(encoded, padded.unsqueeze(-1))
        steps = torch.arange(target.shape[-1], device=target.device)
        # Padding comes last, so hiding the future hides it, too, from every place that counts.
        future = _forbidden(steps[:, None] > steps, like=encoded).unsqueeze(0)
        decoded = self._embed(self.target, target)
        for layer in self.decoder:
            decoded = layer(decoded, future, encoded, padded.unsqueeze(-1))
        return decoded

    def _embed(self, table: nn.Embedding, words: Int[Tensor, "m b t"]) -> Float[Tensor, "m bt w"]:
        r"""Word vectors times $\sqrt w$, plus the positions'."""
        first = table.weight.shape[1] * torch.arange(len(words), device=words.device).view(-1, 1, 1)
        vectors = embedding(words + first, table.weight.flatten(0, 1))
        return (
            positions(words.shape[-1], self.width, like=vectors).add(vectors, alpha=math.sqrt(self.width)).flatten(1, 2)
        )


def _linear(layer: nn.Linear, places: Float[Tensor, "m n i"]) -> Float[Tensor, "m n o"]:
    """The layer, with weights of its own for every network."""
    return torch.baddbmm(layer.bias.unsqueeze(1), places, layer.weight.mT)


def _normalised(layer: nn.LayerNorm, places: Float[Tensor, "m n w"]) -> Float[Tensor, "m n w"]:
    """The layer, with weights of its own for every network."""
    alike = layer_norm(places, layer.normalized_shape, eps=layer.eps)
    return torch.addcmul(layer.bias.unsqueeze(1), alike, layer.weight.unsqueeze(1))


def _forbidden(hidden: Bool[Tensor, "*h"], *, like: Tensor) -> Float[Tensor, "*h"]:
    r"""$-\infty$ where something is hidden and 0 elsewhere, to be added to scores."""
    return torch.zeros(hidden.shape, device=hidden.device, dtype=like.dtype).masked_fill_(hidden, -math.inf)


def positions(length: int, width: int, *, like: Tensor) -> Float[Tensor, "length width"]:
    r"""Vectors of the positions, $P_{t,2i} = \sin(t / 10000^{2i/w})$ and $P_{t,2i+1} = \cos(t / 10000^{2i/w})$.

    Source: Vaswani et al. (2017), section 3.5.
    """
    place = torch.arange(length, device=like.device, dtype=like.dtype)
    rates = torch.exp(torch.arange(0, width, 2, device=like.device, dtype=like.dtype) * (-math.log(10_000) / width))
    angles = place[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
