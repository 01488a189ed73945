"""Multi30k's two files parse to pairs of sentences, or are refused."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import datasets, multi30k
from leakage.data.datasets import DataDamaged
from small_data import spoiled

EN = b"A dog runs.\nTwo men talk.\n"
DE = "Ein Hund läuft.\nZwei Männer reden.\n".encode()


def test_line_i_of_one_language_goes_with_line_i_of_the_other():
    pairs = multi30k.parse(EN, DE)
    assert pairs.en == ("A dog runs.", "Two men talk.")
    assert pairs.de == ("Ein Hund läuft.", "Zwei Männer reden.")
    assert len(pairs) == 2


def test_only_line_breaks_end_a_sentence():
    inside = "A\u2028dog\x85 runs .\n".encode()  # a line separator and a next-line character, both within the sentence
    assert multi30k.parse(inside, b"Ein Hund\n").en == ("A\u2028dog\x85 runs .",)


@pytest.mark.parametrize(
    ("en", "de", "message"),
    [
        pytest.param(EN + b"More.\n", DE, "here: .*as many English as German sentences, found 3 and 2", id="unequal"),
        pytest.param(EN[:-1], DE, "here.en: .*a line break after the last row, found ' runs", id="cut"),
        pytest.param(
            EN, DE.replace("ä".encode(), b"\xe4"), "here.de: expected UTF-8, found byte 0xe4 at 10", id="Latin-1"
        ),
        pytest.param(EN, DE[:11] + b"\n", "expected UTF-8, found byte 0xc3 at 10", id="cut within a letter"),
        pytest.param(EN.decode().encode("utf-16"), DE, "here.en: expected UTF-8, found byte 0xff at 0", id="UTF-16"),
        pytest.param(EN.replace(b"\n", b"\r\n"), DE, "a plain line break in line 1, found", id="Windows"),
        pytest.param(
            EN.replace(b"\n", b"\n\n", 1), DE, "a sentence and a plain line break in line 2, found ''", id="empty"
        ),
        pytest.param(b" \n", b"x\n", "in line 1, found ' '", id="blank"),
        pytest.param(b"", b"", "a line break after the last row, found ''", id="nothing"),
    ],
)
def test_files_of_another_form_are_refused(en, de, message):
    with pytest.raises(DataDamaged, match=message):
        multi30k.parse(en, de, source="here")


@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_is_parsed_or_refused_and_nothing_else(data):
    with suppress(DataDamaged):
        multi30k.parse(EN, data.draw(spoiled(DE)))


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="`split` must be one of train, val, test_2016_flickr; got 'test'"):
        multi30k.load("test")


@pytest.mark.skipif(not datasets.is_available("multi30k"), reason="Multi30k is not in the data folder")
@pytest.mark.parametrize(("split", "pairs"), [("train", 29_000), ("val", 1_014), ("test_2016_flickr", 1_000)])
def test_the_real_splits_have_their_published_sizes(split, pairs):
    assert len(multi30k.load(split)) == pairs


@pytest.mark.skipif(not datasets.is_available("multi30k"), reason="Multi30k is not in the data folder")
def test_the_real_pairs_are_translations():
    train = multi30k.load("train")
    assert train.en[0] == "Two young, White males are outside near many bushes."
    assert train.de[0] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
