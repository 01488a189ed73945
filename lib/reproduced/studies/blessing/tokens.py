r"""Sentences as numbers: words, vocabularies, and rows of word numbers of one length.

A word is a run of letters and digits, or a single other sign, in lower case. Four numbers are special: `PADDING` (0)
fills rows up, `UNKNOWN` stands for a word outside the vocabulary, `BEGIN` and `END` frame a target sentence. The rules
use no list, model or locale, so the same sentences give the same numbers everywhere.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor

from leakage.data.multi30k import SentencePairs
from leakage.models.transformer import PADDING

UNKNOWN, BEGIN, END = range(PADDING + 1, 4)
SPECIAL = ("<padding>", "<unknown>", "<begin>", "<end>")
"""How the special numbers are written in text; no word looks like this."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary:
    """Different words, numbered from 4 on."""

    words: tuple[str, ...]
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number for number, word in enumerate(self.words, start=len(SPECIAL))}
        object.__setattr__(self, "numbers", numbers)

    def __len__(self) -> int:
        """How many numbers there are, including the special ones."""
        return len(SPECIAL) + len(self.words)

    def text(self, row: Iterable[int]) -> str:
        """The words of a row of numbers, separated by blanks, without padding."""
        names = (*SPECIAL, *self.words)
        return " ".join(names[number] for number in row if number != PADDING)


def words(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, after Unicode normalisation (NFC) and in lower case: "It's 5!" is it, ', s, 5 and !."""
    return tuple(_WORD.findall(unicodedata.normalize("NFC", sentence).lower()))


def vocabulary(sentences: Iterable[str], *, least: int = 1) -> Vocabulary:
    """Every word that occurs at least `least` times, the most frequent first and equally frequent ones by alphabet."""
    counts = Counter(word for sentence in sentences for word in words(sentence))
    kept = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    return Vocabulary(tuple(kept))


def encode(
    sentences: Sequence[str], known: Vocabulary, *, longest: int, framed: bool = False
) -> Int64[Tensor, "n length"]:
    """Rows of word numbers, padded to `longest` words, or to two more numbers where `BEGIN` and `END` frame them."""
    rows = torch.full((len(sentences), longest + 2 * framed), PADDING, dtype=torch.int64)
    for number, sentence in enumerate(sentences):
        numbers = [known.numbers.get(word, UNKNOWN) for word in words(sentence)]
        numbers = [BEGIN, *numbers, END] if framed else numbers
        rows[number, : len(numbers)] = torch.tensor(numbers)
    return rows


def short(pairs: SentencePairs, *, longest: int) -> SentencePairs:
    """The pairs with 1 to `longest` words in both languages, in their order."""
    kept = [
        number
        for number, both in enumerate(zip(pairs.en, pairs.de, strict=True))
        if all(1 <= len(words(sentence)) <= longest for sentence in both)
    ]
    return chosen(pairs, kept)


def chosen(pairs: SentencePairs, numbers: Sequence[int]) -> SentencePairs:
    """The pairs with these numbers, in this order."""
    return SentencePairs(tuple(pairs.en[number] for number in numbers), tuple(pairs.de[number] for number in numbers))
