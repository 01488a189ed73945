r"""Transformer(w): an encoder and a decoder of width w that translate sentences of word numbers.

The architecture is that of Vaswani et al. (2017): sinusoidal positions, layers normalised after each sum, feed-forward
layers of 4w neurons, and the target's word vectors used again as output weights. Nothing attends to `PADDING`.
There is no dropout. The module is a form without parameters (they are on PyTorch's `meta` device);
`models.initialisation` draws them. Nothing here trains, tokenises or searches for a translation.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from leakage import arguments

PADDING = 0
"""The number of a word that is none: it fills the rows of shorter sentences up."""


class Attention(nn.Module):
    r"""Multi-head attention: $\operatorname{softmax}(Q K^\top / \sqrt{d_h}) V$ in each of `heads` slices of w."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)

    def extra_repr(self) -> str:
        """What PyTorch prints of the layer; the weights do not show how many heads share them."""
        return f"heads={self.heads}"

    def forward(
        self, asking: Float[Tensor, "b t w"], asked: Float[Tensor, "b s w"], hidden: Bool[Tensor, "#b 1 #t s"]
    ) -> Float[Tensor, "b t w"]:
        """What each place of `asking` reads from the places of `asked` that are not hidden from it."""
        query, key, value = (
            layer(places).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for layer, places in ((self.query, asking), (self.key, asked), (self.value, asked))
        )
        # The places that are asked stand before those that ask: a CPU takes a softmax over few neighbours in memory a
        # number at a time, and over few rows many numbers at a time.
        scores = key @ (query / math.sqrt(query.shape[-1])).mT
        weights = scores.masked_fill(hidden.mT, -math.inf).softmax(-2)
        return self.merge((weights.mT @ value).transpose(-2, -3).flatten(-2))


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
        places: Float[Tensor, "b t w"],
        hidden: Bool[Tensor, "#b 1 #t t"],
        encoded: Float[Tensor, "b s w"] | None = None,
        encoded_hidden: Bool[Tensor, "#b 1 #t s"] | None = None,
    ) -> Float[Tensor, "b t w"]:
        """The layer's output; `encoded` is the encoder's, for layers with memory."""
        places = self.attention_norm(places + self.attention(places, places, hidden))
        if encoded is not None:
            places = self.memory_norm(places + self.memory(places, encoded, encoded_hidden))
        return self.norm(places + self.contract(self.expand(places).relu()))


class Transformer(nn.Module):
    r"""The logits of every next word of a target sentence, given the source sentence and the words before.

    Parameters, with $V_s, V_t$ words, L layers on either side:
    $w (V_s + V_t) + L\,(28 w^2 + 32 w)$.

    Source: Vaswani et al. (2017), section 3; widths as in Tan et al. (2023), section F: features w, feed-forward 4w.
    The number of layers and heads and the dropout are not stated there; Vaswani et al. have 6, 8 and 0.1.

    Args:
        width: w, a multiple of `heads`.
        source_words: words of the source language, with the special ones.
        target_words: words of the target language, with the special ones.
        layers: L.
        heads: of every attention.

    Raises:
        ValueError: if a size is not positive, or the heads do not divide the width.
    """

    def __init__(self, width: int, *, source_words: int, target_words: int, layers: int = 6, heads: int = 8) -> None:
        super().__init__()
        sizes = {"width": width, "source_words": source_words, "target_words": target_words, "layers": layers}
        for name, size in (sizes | {"heads": heads}).items():
            arguments.count(name, size, least=1)
        if width % heads or width % 2:
            raise ValueError(f"`width` must be even and a multiple of `heads` = {heads}, got {width!r}.")
        self.width = width
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.source = nn.Embedding(source_words, width)
            self.target = nn.Embedding(target_words, width)
            self.encoder = nn.ModuleList(Layer(width, heads, memory=False) for _ in range(layers))
            self.decoder = nn.ModuleList(Layer(width, heads, memory=True) for _ in range(layers))

    def forward(self, source: Int[Tensor, "b s"], target: Int[Tensor, "b t"]) -> Float[Tensor, "b t words"]:
        """Logits of the word that follows each place of `target`, which must begin with a word, not with padding."""
        padded = (source == PADDING)[:, None, None, :]
        encoded = self._embed(self.source, source)
        for layer in self.encoder:
            encoded = layer(encoded, padded)
        steps = torch.arange(target.shape[-1], device=target.device)
        # Padding comes last, so that hiding the future hides it, too, from every place that counts.
        future = (steps[None, :] > steps[:, None])[None, None]
        decoded = self._embed(self.target, target)
        for layer in self.decoder:
            decoded = layer(decoded, future, encoded, padded)
        return decoded @ self.target.weight.mT

    def _embed(self, table: nn.Embedding, words: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        r"""Word vectors times $\sqrt w$, plus the positions'."""
        vectors = table(words) * math.sqrt(self.width)
        return vectors + positions(words.shape[-1], self.width, like=vectors)


def positions(length: int, width: int, *, like: Tensor) -> Float[Tensor, "length width"]:
    r"""Where a word stands, $P_{t,2i} = \sin(t / 10000^{2i/w})$ and $P_{t,2i+1} = \cos(t / 10000^{2i/w})$.

    Source: Vaswani et al. (2017), section 3.5.
    """
    place = torch.arange(length, device=like.device, dtype=like.dtype)
    rates = torch.exp(torch.arange(0, width, 2, device=like.device, dtype=like.dtype) * (-math.log(10_000) / width))
    angles = place[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
