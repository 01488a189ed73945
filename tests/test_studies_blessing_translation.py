"""Small Transformers learn real captions by heart, and what they show is recorded."""

from typing import Any

import torch

from leakage.data.multi30k import SentencePairs
from leakage.models.transformer import PADDING
from leakage.runtime import stream
from leakage.trainers.ensembles import Recipe
from reproduced.studies.blessing import translation

NOUNS = (("dog", "Hund"), ("man", "Mann"), ("boy", "Junge"), ("bird", "Vogel"))
VERBS = (("runs", "läuft"), ("sits", "sitzt"), ("sleeps", "schläft"), ("eats", "isst"))


def sentences(adverbs):
    """Every noun with every verb and one of the adverbs, in turn."""
    pairs = [(noun, verb) for noun in NOUNS for verb in VERBS]
    english = tuple(f"A {n[0]} {v[0]} {adverbs[i % len(adverbs)]}." for i, (n, v) in enumerate(pairs))
    german = tuple(f"Ein {n[1]} {v[1]} {adverbs[i % len(adverbs)]}." for i, (n, v) in enumerate(pairs))
    return SentencePairs(english, german)


TRAINING = sentences(("here", "there", "now"))
LONG = SentencePairs(("A dog runs and runs and runs.",), ("Ein Hund läuft und läuft.",))
SMALL: dict[str, Any] = {"pool": 12, "longest": 5, "least": 1, "layers": 1, "heads": 2, "models": 4, "seed": 0}


def record(point=(8, 0), **changes):
    settings = SMALL | {"training": TRAINING, "validation": sentences(("now", "here"))}
    settings |= {"recipe": Recipe(2, 3, 0.01), "epochs": (0, 2)}
    return translation.watched(point, **(settings | changes))


def test_the_record_has_the_form_that_attacks_read():
    seen = record().seen
    assert seen.losses.shape == (2, 4, 12)
    assert seen.error.shape == seen.validation_loss.shape == (2, 4)
    assert seen.losses.dtype == torch.float64
    assert bool(((seen.error >= 0) & (seen.error <= 1)).all())


def test_members_are_learnt_by_heart():
    found = record((16, 0), recipe=Recipe(25, 3, 0.02), epochs=(25,))
    losses, member = found.seen.losses[0], found.member
    # Four seeds gave members 0.03 to 0.07 and outsiders 2.3 to 2.5.
    assert float(losses[member].mean()) < 0.25 < float(losses[~member].mean()) / 4


def test_widths_share_their_pool_and_pairs_and_splits_do_not():
    narrow, wide, other = record((8, 0)), record((16, 0)), record((8, 1))
    torch.testing.assert_close(narrow.member, wide.member)
    assert bool((narrow.member != other.member).any())
    assert not torch.allclose(narrow.seen.losses, wide.seen.losses)


def test_a_pool_is_drawn_from_the_short_pairs_and_numbered_by_its_words():
    both = SentencePairs(TRAINING.en + LONG.en, TRAINING.de + LONG.de)
    settings: dict[str, Any] = {"pool": 16, "longest": 5, "least": 1}
    members, others = translation.prepared(both, LONG_AND_SHORT, generator=stream(0, "pool"), **settings)
    assert len(members) == 16
    assert len(others) == 1
    english = {members.source_vocabulary.text(row) for row in members.source.tolist()}
    assert english == {sentence.lower().replace(".", " .") for sentence in TRAINING.en}
    # The validation pair has a word that the pool does not have.
    assert others.source_vocabulary.text(others.source[0].tolist()) == "a dog <unknown> here ."


LONG_AND_SHORT = SentencePairs(("A dog flies here.", *LONG.en), ("Ein Hund fliegt here.", *LONG.de))


def test_the_answer_at_every_place_is_the_next_word():
    members, _ = translation.prepared(TRAINING, TRAINING, pool=3, longest=7, least=1, generator=stream(0, "pool"))
    asked = translation.examples(members)
    source, target = asked.inputs
    torch.testing.assert_close(source, members.source)
    torch.testing.assert_close(target[:, 1:], asked.targets[:, :-1])
    answers = (asked.targets != PADDING).sum(-1)
    assert answers.tolist() == [6, 6, 6]  # five words and the end
