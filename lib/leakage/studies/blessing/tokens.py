r"""Sentences as numbers: words, vocabularies, and rows of word numbers of one length.

A word is a run of letters and digits, or a single other sign, in lower case. Four numbers are special: `PADDING` (0)
fills rows up, `UNKNOWN` stands for a word outside the vocabulary, `BEGIN` and `END` frame a target sentence. The rules
use no list, model or locale, so that the same sentences give the same numbers everywhere. Nothing here reads a file.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from leakage.arguments import count
from leakage.data.multi30k import SentencePairs
from leakage.models.transformer import PADDING

UNKNOWN, BEGIN, END = range(PADDING + 1, 4)
SPECIAL = ("<padding>", "<unknown>", "<begin>", "<end>")
"""How the special numbers are written in text; no word has such a form, because it has more than one sign."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary:
    """The words that have a number of their own, from number 4 on.

    Raises:
        ValueError: if a word occurs twice.
    """

    words: tuple[str, ...]
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number for number, word in enumerate(self.words, start=len(SPECIAL))}
        if len(numbers) < len(self.words):
            (twice, _), *_ = Counter(self.words).most_common(1)
            raise ValueError(f"`words` must differ from each other, got {twice!r} more than once.")
        object.__setattr__(self, "numbers", numbers)

    def __len__(self) -> int:
        """How many numbers there are, with the special ones."""
        return len(SPECIAL) + len(self.words)

    def text(self, row: Iterable[int]) -> str:
        """The words of a row of numbers, separated by blanks, without padding.

        Raises:
            ValueError: if a number belongs to no word.
        """
        names = (*SPECIAL, *self.words)
        numbers = [count("row", number, most=len(names) - 1) for number in row]
        return " ".join(names[number] for number in numbers if number != PADDING)


def words(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, after Unicode normalisation (NFC) and in lower case: "It's 5!" is it, ', s, 5 and !."""
    return tuple(_WORD.findall(unicodedata.normalize("NFC", sentence).lower()))


def vocabulary(sentences: Iterable[str], *, least: int = 1) -> Vocabulary:
    """Every word that occurs at least `least` times, the most frequent first and equally frequent ones by alphabet.

    Raises:
        ValueError: if `least` is not positive, or no word is frequent enough.
    """
    least = count("least", least, least=1)
    counts = Counter(word for sentence in _several(sentences) for word in words(sentence))
    kept = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    if not kept:
        raise ValueError(f"`sentences` must have a word that occurs {least} times; of {len(counts)} words none does.")
    return Vocabulary(tuple(kept))


def encode(
    sentences: Sequence[str], known: Vocabulary, *, longest: int, framed: bool = False
) -> Int64[Tensor, "n length"]:
    """Rows of word numbers, padded to `longest` words, or to two numbers more where `BEGIN` and `END` frame them.

    Raises:
        ValueError: if a sentence has no word, or more than `longest`.
    """
    sentences, longest = _several(sentences), count("longest", longest, least=1)
    rows = torch.full((len(sentences), longest + 2 * framed), PADDING, dtype=torch.int64)
    for number, sentence in enumerate(sentences):
        found = words(sentence)
        if not 1 <= len(found) <= longest:
            raise ValueError(
                f"`sentences` must have 1 to {longest} words, number {number} has {len(found)}; see `short`."
            )
        numbers = [known.numbers.get(word, UNKNOWN) for word in found]
        numbers = [BEGIN, *numbers, END] if framed else numbers
        rows[number, : len(numbers)] = torch.tensor(numbers)
    return rows


def short(pairs: SentencePairs, *, longest: int) -> SentencePairs:
    """The pairs with 1 to `longest` words in either language, in their order.

    Raises:
        ValueError: if `longest` is below 1.
    """
    longest = count("longest", longest, least=1)
    kept = [
        number
        for number, both in enumerate(zip(pairs.en, pairs.de, strict=True))
        if all(1 <= len(words(sentence)) <= longest for sentence in both)
    ]
    return chosen(pairs, kept)


def chosen(pairs: SentencePairs, numbers: Iterable[int]) -> SentencePairs:
    """The pairs of these numbers, in this order.

    Raises:
        ValueError: if one is not from 0 to the last.
    """
    numbers = [count("numbers", number, most=len(pairs) - 1) for number in numbers]
    return SentencePairs(tuple(pairs.en[number] for number in numbers), tuple(pairs.de[number] for number in numbers))


def _several(sentences: Any) -> Any:
    if isinstance(sentences, str):  # whose items are letters
        raise ValueError(f"`sentences` must be several, got the string {sentences[:40]!r}; write [sentence].")
    return sentences
