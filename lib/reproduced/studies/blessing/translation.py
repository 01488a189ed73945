r"""Small Transformers that learn to translate real captions, with their losses and errors while they train.

The experiment of Tan et al. (2023), Figure 7 and section F, at any size: English to German on Multi30k, one width at a
time. A word is a run of letters and digits, or a single other sign, in lower case, and stands as a number. Errors are
those of single words, each given the right words before it; no whole translation is searched for.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from leakage.data.membership_splits import complementary_pairs
from leakage.data.multi30k import SentencePairs
from leakage.models.initialisation import initial
from leakage.trainers.ensembles import Examples, Recipe
from reproduced.runtime import stream
from reproduced.studies.blessing.early_stopping import Trajectory, record_training
from reproduced.studies.blessing.transformers import PADDING, Transformer, TransformerEnsemble

UNKNOWN, BEGIN, END = range(PADDING + 1, 4)
"""Numbers of a word outside the vocabulary, and of the frame of a target sentence."""
_FIRST = 4  # number of a word
_WORD = re.compile(r"\w+|[^\w\s]")


def train_translators(
    width_and_split: tuple[int, int],
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

    The number of the split fixes pool, vocabularies and pairs of networks. `pool` pairs are drawn from those with at
    most `longest` words in both languages; words that occur in them less than `least` times are unknown.
    """
    width, split = width_and_split
    draws = stream(seed, f"translation pool/{split}")  # on the CPU, where the sentences are
    candidates, others = (select_short(pairs, longest=longest) for pairs in (training, validation))
    members = _select(candidates, torch.randperm(len(candidates), generator=draws)[:pool].tolist())
    english, german = (build_vocabulary(sentences, least=least) for sentences in (members.en, members.de))
    module = Transformer(
        width, source_words=_FIRST + len(english), target_words=_FIRST + len(german), layers=layers, heads=heads
    )
    pairs = complementary_pairs(pool, models, generator=stream(seed, f"translation pairs/{split}", device))
    draws = stream(seed, f"translation networks/{split}/{width}", device)
    own, fresh = (
        encode_pairs(sentences, english, german, longest=longest, device=device) for sentences in (members, others)
    )
    networks = TransformerEnsemble(module, initial(module, models, generator=draws))
    return record_training(networks, own, fresh, recipe, pairs=pairs, epochs=epochs, generator=draws)


def select_short(pairs: SentencePairs, *, longest: int) -> SentencePairs:
    """The pairs with 1 to `longest` words in both languages, in their order."""
    both = enumerate(zip(pairs.en, pairs.de, strict=True))
    return _select(pairs, [n for n, pair in both if all(1 <= len(split_words(one)) <= longest for one in pair)])


def split_words(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, after Unicode normalisation (NFC) and in lower case: "It's 5!" is it, ', s, 5 and !."""
    return tuple(_WORD.findall(unicodedata.normalize("NFC", sentence).lower()))


def build_vocabulary(sentences: Iterable[str], *, least: int = 1) -> dict[str, int]:
    """Numbers, from 4 on, of the words that occur at least `least` times, by frequency and then by alphabet."""
    counts = Counter(word for sentence in sentences for word in split_words(sentence))
    kept = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(kept, start=_FIRST)}


def encode_pairs(
    pairs: SentencePairs,
    english: Mapping[str, int],
    german: Mapping[str, int],
    *,
    longest: int,
    device: torch.device | str = "cpu",
) -> Examples:
    """Examples for a translator: the inputs are the source and the target so far, the answer is the next word."""
    source = encode(pairs.en, english, longest=longest).to(device)
    target = encode(pairs.de, german, longest=longest, framed=True).to(device)
    return Examples((source, target[:, :-1]), target[:, 1:])


def encode(
    sentences: Sequence[str], vocabulary: Mapping[str, int], *, longest: int, framed: bool = False
) -> Int64[Tensor, "n length"]:
    """Rows of word numbers, padded to `longest` words, or to two more numbers where `BEGIN` and `END` frame them."""
    rows = torch.full((len(sentences), longest + 2 * framed), PADDING, dtype=torch.int64)
    for row, sentence in zip(rows, sentences, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in split_words(sentence)]
        numbers = [BEGIN, *numbers, END] if framed else numbers
        row[: len(numbers)] = torch.tensor(numbers)
    return rows


def _select(pairs: SentencePairs, numbers: Sequence[int]) -> SentencePairs:
    return SentencePairs(tuple(pairs.en[number] for number in numbers), tuple(pairs.de[number] for number in numbers))
