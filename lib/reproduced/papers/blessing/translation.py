r"""Small Transformers that learn to translate real captions, with their losses and errors while they train.

The experiment of Tan et al. (2023), Figure 7 and section F, at any size: English to German on Multi30k, one width at a
time. A word is a run of letters and digits, or a single other sign, in lower case, and stands as a number. Errors are
those of single words, each given the right words before it; no whole translation is searched for.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from leakage.data.datasets import format_error, read_payload, split_lines
from leakage.data.membership_splits import complementary_pairs
from leakage.models.initialisation import initial
from leakage.trainers.ensembles import Examples, Recipe
from reproduced.papers.blessing.early_stopping import Trajectory, record_training
from reproduced.papers.blessing.transformers import PADDING, Transformer, TransformerEnsemble
from reproduced.runtime import Run, move

UNKNOWN, BEGIN, END = range(PADDING + 1, 4)
"""Numbers of a word outside the vocabulary, and of the frame of a target sentence."""
_FIRST = 4  # number of a word
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class SentencePairs:
    """Sentences in two languages as the translators left them; `de[i]` translates `en[i]`."""

    en: tuple[str, ...]
    de: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.en)


def load_captions(split: str) -> SentencePairs:
    """The captions of Multi30k: 29,000 pairs in `train`, 1,014 in `val`, 1,000 in `test_2016_flickr`."""
    en, de = (read_payload("multi30k", f"{split}.{language}") for language in ("en", "de"))
    return parse_captions(en, de, source=f"multi30k/{split}")


def parse_captions(en: bytes, de: bytes, *, source: str = "payload") -> SentencePairs:
    """Pairs from two UTF-8 files with one sentence a line."""
    english, german = _parse_sentences(en, source=f"{source}.en"), _parse_sentences(de, source=f"{source}.de")
    if len(english) != len(german):
        raise format_error(source, "as many English as German sentences", f"{len(english):,} and {len(german):,}")
    return SentencePairs(english, german)


def _parse_sentences(payload: bytes, *, source: str) -> tuple[str, ...]:
    lines = split_lines(payload, "UTF-8", source=source)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or "\r" in line:
            raise format_error(source, f"a sentence and a plain line break in line {number:,}", repr(line))
    return tuple(lines)


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
    run: Run,
) -> Trajectory:
    r"""Train `models` Transformers on halves of a pool of sentence pairs and record losses and errors.

    The loss of a sentence pair is the mean cross-entropy of its words, the end mark included; the objective of a step
    is the mean over all words of its batch. The vocabularies hold the words of the whole pool, so they contain nothing
    about membership.

    The number of the split fixes pool, vocabularies and pairs of networks. `pool` pairs are drawn from those with at
    most `longest` words in both languages; words that occur in them less than `least` times are unknown.
    """
    width, split = width_and_split
    draws = run.stream(f"translation pool/{split}")
    candidates, others = (select_short(pairs, longest=longest) for pairs in (training, validation))
    members = _select(candidates, torch.randperm(len(candidates), generator=draws)[:pool].tolist())
    english, german = (build_vocabulary(sentences, least=least) for sentences in (members.en, members.de))
    module = Transformer(
        width, source_words=_FIRST + len(english), target_words=_FIRST + len(german), layers=layers, heads=heads
    )
    pairs = complementary_pairs(pool, models, generator=run.stream(f"translation pairs/{split}"))
    draws = run.stream(f"translation networks/{split}/{width}")
    own, fresh = (encode_pairs(sentences, english, german, longest=longest) for sentences in (members, others))
    stack = initial(module, models, generator=draws)
    # Every word of a sentence meets the weights, as a point does those of a classifier.
    weights = sum(part.numel() for part in stack.parameters.values())
    device = run.device_for("networks", recipe.batch * longest * weights)
    own, fresh, pairs, stack = move((own, fresh, pairs, stack), device)
    networks = TransformerEnsemble(module, stack)
    trained = record_training(networks, own, fresh, recipe, pairs=pairs, epochs=epochs, generator=draws)
    return move(trained, "cpu")


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
    pairs: SentencePairs, english: Mapping[str, int], german: Mapping[str, int], *, longest: int
) -> Examples:
    """Examples for a translator: the inputs are the source and the target so far, the answer is the next word."""
    source = encode(pairs.en, english, longest=longest)
    target = encode(pairs.de, german, longest=longest, framed=True)
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
