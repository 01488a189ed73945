"""Captions are read strictly and become numbers; small Transformers learn them by heart, and it is recorded."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import datasets
from leakage.data.datasets import DataDamaged
from leakage.trainers.ensembles import Recipe
from reproduced.papers.blessing.transformers import PADDING
from reproduced.papers.blessing.translation import (
    BEGIN,
    END,
    UNKNOWN,
    SentencePairs,
    build_vocabulary,
    encode,
    encode_pairs,
    load_captions,
    parse_captions,
    select_short,
    split_words,
    train_translators,
)
from reproduced.runtime import begin
from small_data import spoiled

EN = b"A dog runs.\nTwo men talk.\n"
DE = "Ein Hund läuft.\nZwei Männer reden.\n".encode()

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
SMALL: dict[str, Any] = dict(pool=12, longest=5, least=1, layers=1, heads=2, models=4, run=begin(device="cpu"))


def record(point=(8, 0), **changes):
    options = SMALL | {"training": TRAINING, "validation": sentences(("now", "here"))}
    options |= {"recipe": Recipe(2, 3, 0.01), "epochs": (0, 2)}
    return train_translators(point, **(options | changes))


def test_the_record_has_the_form_that_attacks_read():
    seen = record().recorded
    assert seen.losses.shape == (2, 4, 12)
    assert seen.error.shape == seen.validation_loss.shape == (2, 4)
    assert seen.losses.dtype == torch.float64
    assert bool(((seen.error >= 0) & (seen.error <= 1)).all())


def test_members_are_learnt_by_heart():
    found = record((16, 0), recipe=Recipe(25, 3, 0.02), epochs=(25,))
    losses, member = found.recorded.losses[0], found.member
    # Four seeds gave members 0.03 to 0.07 and outsiders 2.3 to 2.5.
    assert float(losses[member].mean()) < 0.25 < float(losses[~member].mean()) / 4


def test_pools_are_drawn_from_the_short_pairs():
    both = SentencePairs(TRAINING.en + LONG.en, TRAINING.de + LONG.de)
    assert select_short(both, longest=5) == TRAINING
    found, short = (record(training=training).recorded.losses for training in (both, TRAINING))
    torch.testing.assert_close(found, short)


def test_the_answer_at_every_place_is_the_next_word():
    english, german = build_vocabulary(TRAINING.en), build_vocabulary(TRAINING.de)
    asked = encode_pairs(TRAINING, english, german, longest=7)
    source, target = asked.inputs
    torch.testing.assert_close(source, encode(TRAINING.en, english, longest=7))
    torch.testing.assert_close(target[:, 1:], asked.targets[:, :-1])
    assert set((asked.targets != PADDING).sum(-1).tolist()) == {6}  # five words and the end


def test_words_are_lower_case_runs_of_letters_and_single_signs():
    assert split_words("Two men's T-Shirts, 25!") == ("two", "men", "'", "s", "t", "-", "shirts", ",", "25", "!")
    assert split_words("Ein Straßen-Café") == ("ein", "straßen", "-", "café")
    assert split_words(" \t ") == ()


def test_frequent_words_come_first_and_equal_ones_by_alphabet():
    sentences = ["b b c", "a c", "b"]
    assert build_vocabulary(sentences) == build_vocabulary(sentences[::-1]) == {"b": 4, "c": 5, "a": 6}
    assert build_vocabulary(sentences, least=2) == {"b": 4, "c": 5}


def test_rows_are_padded_and_framed():
    known = build_vocabulary(["a dog runs"])
    plain, framed = (encode(["A dog", "a cat runs"], known, longest=3, framed=framed) for framed in (False, True))
    a, dog, runs = (known[word] for word in ("a", "dog", "runs"))
    assert plain.tolist() == [[a, dog, PADDING], [a, UNKNOWN, runs]]
    assert framed.tolist() == [[BEGIN, a, dog, END, PADDING], [BEGIN, a, UNKNOWN, runs, END]]
    assert plain.dtype == torch.int64


def test_line_i_of_one_language_goes_with_line_i_of_the_other():
    pairs = parse_captions(EN, DE)
    assert pairs.en == ("A dog runs.", "Two men talk.")
    assert pairs.de == ("Ein Hund läuft.", "Zwei Männer reden.")
    assert len(pairs) == 2


def test_only_line_breaks_end_a_sentence():
    inside = "A\u2028dog\x85 runs .\n".encode()  # a line separator and a next-line character, both within the sentence
    assert parse_captions(inside, b"Ein Hund\n").en == ("A\u2028dog\x85 runs .",)


@pytest.mark.parametrize(
    ("en", "de", "message"),
    [
        pytest.param(EN + b"More.\n", DE, "here: .*as many English as German sentences, found 3 and 2", id="unequal"),
        pytest.param(
            EN, DE.replace("ä".encode(), b"\xe4"), "here.de: expected UTF-8, found byte 0xe4 at 10", id="Latin-1"
        ),
        pytest.param(EN.replace(b"\n", b"\r\n"), DE, "a plain line break in line 1, found", id="Windows"),
        pytest.param(
            EN.replace(b"\n", b"\n\n", 1), DE, "a sentence and a plain line break in line 2, found ''", id="empty"
        ),
    ],
)
def test_files_of_another_form_are_refused(en, de, message):
    with pytest.raises(DataDamaged, match=message):
        parse_captions(en, de, source="here")


@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_is_parsed_or_refused_and_nothing_else(data):
    with suppress(DataDamaged):
        parse_captions(EN, data.draw(spoiled(DE)))


@pytest.mark.skipif(not datasets.is_available("multi30k"), reason="Multi30k is not in the data folder")
@pytest.mark.parametrize(("split", "pairs"), [("train", 29_000), ("val", 1_014), ("test_2016_flickr", 1_000)])
def test_the_real_splits_have_their_published_sizes(split, pairs):
    assert len(load_captions(split)) == pairs


@pytest.mark.skipif(not datasets.is_available("multi30k"), reason="Multi30k is not in the data folder")
def test_the_real_pairs_are_translations():
    train = load_captions("train")
    assert train.en[0] == "Two young, White males are outside near many bushes."
    assert train.de[0] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
