"""Multi30k's captions: English sentences and their German translations, as the translators left them.

Line i of one language translates line i of the other. Nothing here tokenises, lower-cases, strips or shuffles.
"""

from dataclasses import dataclass

from leakage.arguments import choice
from leakage.data import fetch
from leakage.data.registry import lines, malformed

SPLITS = ("train", "val", "test_2016_flickr")


@dataclass(frozen=True)
class SentencePairs:
    """Sentences in two languages; `en[i]` and `de[i]` say the same."""

    en: tuple[str, ...]
    de: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.en)


def load(split: str = "train") -> SentencePairs:
    """The pairs of one split: 29,000 in `train`, 1,014 in `val`, 1,000 in `test_2016_flickr`.

    Args:
        split: one of `SPLITS`.

    Raises:
        DataAbsent: if the files are not here.
        DataDamaged: if a file is not what it should be.
    """
    choice("split", split, SPLITS)
    en, de = (fetch.read_payload("multi30k", f"{split}.{language}") for language in ("en", "de"))
    return parse(en, de, source=f"multi30k/{split}")


def parse(en: bytes, de: bytes, *, source: str = "payload") -> SentencePairs:
    """Pairs from two UTF-8 files with one sentence a line.

    Raises:
        DataDamaged: if a file is not UTF-8, has an empty or unfinished line, or the two differ in length.
    """
    english, german = _sentences(en, source=f"{source}.en"), _sentences(de, source=f"{source}.de")
    if len(english) != len(german):
        raise malformed(source, "as many English as German sentences", f"{len(english):,} and {len(german):,}")
    return SentencePairs(english, german)


def _sentences(payload: bytes, *, source: str) -> tuple[str, ...]:
    found = lines(payload, "UTF-8", source=source)
    for number, line in enumerate(found, start=1):
        if not line.strip() or "\r" in line:
            raise malformed(source, f"a sentence and a plain line break in line {number:,}", repr(line))
    return tuple(found)
