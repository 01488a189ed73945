"""20 Newsgroups' archive parses to messages and groups, or is refused, and its words become weights."""

import math
import tarfile

import pytest
import torch

from leakage.data import newsgroups
from leakage.data.registry import DataDamaged
from small_data import member, tar_gz

TRAIN, TEST = "20news-bydate-train", "20news-bydate-test"
MESSAGES = (
    member(f"{TEST}", tarfile.DIRTYPE),
    (f"{TEST}/sci.space/900", b"a late orbit"),
    member(f"{TRAIN}/", tarfile.DIRTYPE),
    member(f"{TRAIN}/sci.space", tarfile.DIRTYPE),
    (f"{TRAIN}/sci.space/70", b"orbit orbit moon"),
    (f"{TRAIN}/sci.space/9", b"moon"),
    (f"{TRAIN}/rec.autos/100", b"a car in M\xfcnchen"),
)


def parse(*members, part="train", messages=3, groups=2):
    return newsgroups.parse(tar_gz(*members), part=part, messages=messages, groups=groups, source="here")


def test_messages_come_by_group_and_number_whatever_their_order():
    parsed = parse(*MESSAGES)
    assert parsed.groups == ("rec.autos", "sci.space")
    assert parsed.texts == ("a car in München", "moon", "orbit orbit moon")
    assert parsed.labels.tolist() == [0, 1, 1]
    backwards = parse(*MESSAGES[::-1])
    assert (backwards.texts, backwards.labels.tolist()) == (parsed.texts, parsed.labels.tolist())


def test_the_parts_are_kept_apart():
    late = parse(*MESSAGES, part="test", messages=1, groups=1)
    assert (len(late), late.texts, late.groups) == (1, ("a late orbit",), ("sci.space",))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        pytest.param((f"{TRAIN}/sci.space/71", b"x"), "3 train messages to 2 groups, found 4 to 2", id="one more"),
        pytest.param((f"{TRAIN}/sci.space/9", b"y"), "each once.* found .*sci.space/9' twice", id="twice"),
        pytest.param((f"{TRAIN}/sci.space/readme", b""), "messages .* found '20news.*readme'", id="not a number"),
        pytest.param(("notes", b""), "found 'notes'", id="another file"),
        pytest.param((f"{TRAIN}/../evil/1", b""), "found .*'20news.*evil/1' is unsafe", id="outside"),
        pytest.param(member(f"{TRAIN}/sci.space/5", tarfile.SYMTYPE, target="9"), "sci.space/5", id="a link"),
        pytest.param(member("other", tarfile.DIRTYPE), "found 'other'", id="another folder"),
        pytest.param((f"{TRAIN}/sci.space/71", bytes(2**20 + 1)), "at most 1,048,576 bytes", id="too long"),
    ],
)
def test_anything_unexpected_is_refused(extra, message):
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        parse(*MESSAGES, extra)


@pytest.mark.parametrize("packed", [b"", b"no archive", tar_gz(*MESSAGES)[:-30]], ids=["empty", "text", "cut"])
def test_a_file_that_does_not_unpack_is_refused(packed):
    with pytest.raises(DataDamaged, match=r"^here: expected a packed archive"):
        newsgroups.parse(packed, part="train", messages=3, groups=2, source="here")


def test_the_real_set_must_have_its_published_size():
    with pytest.raises(DataDamaged, match="expected 11,314 train messages to 20 groups, found 3 to 2"):
        newsgroups.parse(tar_gz(*MESSAGES), part="train")


def test_weights_are_counts_times_rarity_and_rows_have_length_one():
    training, late = parse(*MESSAGES), parse(*MESSAGES, part="test", messages=1, groups=1)
    table, other = newsgroups.tf_idf(training, late, features=2)
    # "moon" is in two of three messages, "orbit" twice in one of them: the two most frequent words, by alphabet.
    moon, orbit = (1 + math.log(4 / 3), 2 * (1 + math.log(4 / 2)))
    length = math.hypot(moon, orbit)
    expected = torch.tensor([[0.0, 0.0], [1.0, 0.0], [moon / length, orbit / length]])
    torch.testing.assert_close(table, expected)
    torch.testing.assert_close(other, torch.tensor([[0.0, 1.0]]))


def test_impossible_settings_are_refused():
    training = parse(*MESSAGES)
    with pytest.raises(ValueError, match="`features` must be at most 5, the words of the set; got 9"):
        newsgroups.tf_idf(training, features=9)
    with pytest.raises(ValueError, match="`features` must be a whole number at least 1, got 0"):
        newsgroups.tf_idf(training, features=0)
    with pytest.raises(ValueError, match="`part` must be one of train, test; got 'all'"):
        newsgroups.load("all")
