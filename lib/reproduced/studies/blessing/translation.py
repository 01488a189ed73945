r"""Small Transformers that learn to translate real captions, with their losses and errors while they train.

The experiment of Tan et al. (2023), Figure 7 and section F, at any size: English to German on Multi30k, one width at a
time. The number of the split and the seed fix pool, vocabularies and pairs of networks, so widths are compared on the
same sentences. Errors are those of single words, each given the right words before it; no whole translation is
searched for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from leakage.data.membership_splits import complementary_pairs
from leakage.data.multi30k import SentencePairs
from leakage.models.initialisation import initial
from leakage.models.transformer import Transformer
from leakage.runtime import stream
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.translators import Translators
from reproduced.studies.blessing import tokens, trajectories
from reproduced.studies.blessing.trajectories import Trajectory


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Sentences and their translations as rows of numbers, with their vocabularies.

    Attributes:
        source: the words of the source sentences, then padding.
        target: `tokens.BEGIN`, the words of the target sentences, `tokens.END`, then padding.
    """

    source: Int64[Tensor, "n s"]
    target: Int64[Tensor, "n t"]
    source_vocabulary: tokens.Vocabulary
    target_vocabulary: tokens.Vocabulary

    def __len__(self) -> int:
        return len(self.source)


def watched(
    point: tuple[int, int],
    *,
    training: SentencePairs,
    validation: SentencePairs,
    pool: int,
    longest: int,
    least: int,
    layers: int,
    heads: int,
    models: int,
    recipe: Recipe,
    epochs: Sequence[int],
    seed: int,
    device: torch.device | str = "cpu",
) -> Trajectory:
    r"""Train `models` Transformers on halves of a pool of sentence pairs and record losses and errors.

    The loss of a sentence pair is the mean cross-entropy of its words, the end mark included; the objective of a step
    is the mean over all words of its batch. The vocabularies hold the words of the whole pool, so they contain nothing
    about membership.

    `point` is the width and the number of the split, which has its own pool, pairs and networks. `pool` sentence pairs
    are drawn from those with at most `longest` words in both languages; words that occur in them less than `least`
    times are unknown.
    """
    width, split = point
    draws = stream(seed, f"translation pool/{split}")  # on the CPU, where the sentences are
    members, others = prepared(
        training, validation, pool=pool, longest=longest, least=least, generator=draws, device=device
    )
    module = Transformer(
        width,
        source_words=len(members.source_vocabulary),
        target_words=len(members.target_vocabulary),
        layers=layers,
        heads=heads,
    )
    pairs = complementary_pairs(pool, models, generator=stream(seed, f"translation pairs/{split}", device))
    draws = stream(seed, f"translation networks/{split}/{width}", device)
    stack = initial(module, models, generator=draws)
    return trajectories.watch(
        Translators(module, stack),
        examples(members),
        examples(others),
        recipe,
        pairs=pairs,
        epochs=epochs,
        generator=draws,
    )


def prepared(
    training: SentencePairs,
    validation: SentencePairs,
    *,
    pool: int,
    longest: int,
    least: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> tuple[TokenPairs, TokenPairs]:
    """A random pool of short training pairs, and the short validation pairs, numbered by the words of the pool."""
    candidates, others = (tokens.short(pairs, longest=longest) for pairs in (training, validation))
    order = torch.randperm(len(candidates), generator=generator)[:pool]
    members = tokens.chosen(candidates, order.tolist())
    source, target = (tokens.vocabulary(sentences, least=least) for sentences in (members.en, members.de))

    def numbered(pairs: SentencePairs) -> TokenPairs:
        english = tokens.encode(pairs.en, source, longest=longest)
        german = tokens.encode(pairs.de, target, longest=longest, framed=True)
        return TokenPairs(english.to(device), german.to(device), source, target)

    return numbered(members), numbered(others)


def examples(pairs: TokenPairs) -> Examples:
    """Examples for a translator: the inputs are the source and the target so far, the answer is the next word."""
    return Examples((pairs.source, pairs.target[:, :-1]), pairs.target[:, 1:])
