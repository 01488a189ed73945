"""Sentences become words, words become numbers, and back."""

import torch

from leakage.data.multi30k import SentencePairs
from reproduced.studies.blessing import tokens
from reproduced.studies.blessing.tokens import BEGIN, END, PADDING, UNKNOWN, encode, vocabulary, words

PAIRS = SentencePairs(("A dog runs.", "A cat!", "A dog and a cat sit."), ("Ein Hund läuft.", "Katze!", "Beide sitzen."))


def test_words_are_lower_case_runs_of_letters_and_single_signs():
    assert words("Two men's T-Shirts, 25!") == ("two", "men", "'", "s", "t", "-", "shirts", ",", "25", "!")
    assert words("Ein Straßen-Café") == ("ein", "straßen", "-", "café")
    assert words(" \t ") == ()


def test_one_letter_written_in_two_ways_is_one_word():
    assert words("a\u0308hnlich") == words("ähnlich") == ("ähnlich",)


def test_frequent_words_come_first_and_equal_ones_by_alphabet():
    known = vocabulary(["b b c", "a c", "b"])
    assert known.words == ("b", "c", "a")
    assert vocabulary(["b b c", "a c", "b"], least=2).words == ("b", "c")
    assert len(known) == 4 + 3
    assert known.numbers == {"b": 4, "c": 5, "a": 6}


def test_the_order_of_the_sentences_does_not_change_the_vocabulary():
    assert vocabulary(PAIRS.en) == vocabulary(PAIRS.en[::-1])


def test_rows_are_padded_framed_and_readable():
    known = vocabulary(["a dog runs"])
    plain, framed = (encode(["A dog", "a cat runs"], known, longest=3, framed=framed) for framed in (False, True))
    a, dog, runs = (known.numbers[word] for word in ("a", "dog", "runs"))
    assert plain.tolist() == [[a, dog, PADDING], [a, UNKNOWN, runs]]
    assert framed.tolist() == [[BEGIN, a, dog, END, PADDING], [BEGIN, a, UNKNOWN, runs, END]]
    assert plain.dtype == torch.int64
    assert known.text(framed[1].tolist()) == "<begin> a <unknown> runs <end>"


def test_pairs_keep_their_order_and_their_partners():
    kept = tokens.short(PAIRS, longest=4)
    assert kept == SentencePairs(PAIRS.en[:2], PAIRS.de[:2])
    assert tokens.chosen(PAIRS, [2, 0]) == SentencePairs((PAIRS.en[2], PAIRS.en[0]), (PAIRS.de[2], PAIRS.de[0]))
    english, german = vocabulary(PAIRS.en), vocabulary(PAIRS.de)
    source, target = encode(kept.en, english, longest=4), encode(kept.de, german, longest=4, framed=True)
    assert (source.shape, target.shape) == ((2, 4), (2, 6))
    assert german.text(target[1].tolist()) == "<begin> katze ! <end>"
    assert english.text(source[1].tolist()) == "a cat !"
