"""Multi30k's captions: English sentences and their German translations, as the translators left them.

Line i of one language translates line i of the other. Nothing here tokenises, lower-cases, strips or shuffles.
"""

from dataclasses import dataclass

from leakage import arguments
from leakage.data.datasets import format_error, read_payload, split_lines

SPLITS = ("train", "val", "test_2016_flickr")


@dataclass(frozen=True)
class SentencePairs:
    """Sentences in two languages; `de[i]` translates `en[i]`."""

    en: tuple[str, ...]
    de: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.en)


def load(split: str = "train") -> SentencePairs:
    """The pairs of one of `SPLITS`: 29,000 in `train`, 1,014 in `val`, 1,000 in `test_2016_flickr`."""
    arguments.check_choice("split", split, SPLITS)
    en, de = (read_payload("multi30k", f"{split}.{language}") for language in ("en", "de"))
    return parse(en, de, source=f"multi30k/{split}")


def parse(en: bytes, de: bytes, *, source: str = "payload") -> SentencePairs:
    """Pairs from two UTF-8 files with one sentence a line."""
    english, german = _sentences(en, source=f"{source}.en"), _sentences(de, source=f"{source}.de")
    if len(english) != len(german):
        raise format_error(source, "as many English as German sentences", f"{len(english):,} and {len(german):,}")
    return SentencePairs(english, german)


def _sentences(payload: bytes, *, source: str) -> tuple[str, ...]:
    lines = split_lines(payload, "UTF-8", source=source)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or "\r" in line:
            raise format_error(source, f"a sentence and a plain line break in line {number:,}", repr(line))
    return tuple(lines)
