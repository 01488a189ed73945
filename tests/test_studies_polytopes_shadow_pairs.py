"""Target and shadow see disjoint quarters and know nothing of each other's."""

import pytest
import torch

import noise_labels
from leakage.content_keys import fingerprint
from leakage.runtime import stream
from leakage.studies.polytopes import shadow_pairs
from leakage.studies.polytopes.shadow_pairs import Labelled, Task
from leakage.trainers.ensembles import Recipe
from small_data import entry, pack, put, register_tiny, sha256


def test_quarters_are_disjoint():
    rows = shadow_pairs.quarters(50, size=12, generator=stream(0, "rows"))
    assert rows.shape == (4, 12)
    assert len(rows.unique()) == 48


@pytest.mark.parametrize("registered", [None, sha256(b"one")])
def test_results_on_a_data_set_are_kept_for_the_file_that_was_found(tmp_path, monkeypatch, registered):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    register_tiny(monkeypatch, entry(b"one", sha256=registered, size=None, limit=9))
    monkeypatch.setitem(shadow_pairs.LOADERS, "tiny", lambda: None)
    task, keys = Task("tiny", 5, (3,), Recipe(1, 5)), []
    for payload in (None, b"one", b"two", b"one"):
        if payload:
            put(tmp_path, pack(payload, "gzip"))
        keys.append(fingerprint(task))
    absent, one, two, again = keys
    assert one == again != absent
    assert two == (absent if registered else two) != one


def test_each_network_fits_its_members_and_not_the_outsiders(monkeypatch):
    task = noise_labels.task(monkeypatch)
    pair = shadow_pairs.train_pair(shadow_pairs.load(task), task, split=0, seed=0)
    for side in pair:
        assert side.fit["train"] > 0.99
        # Labels by lot of four classes: a quarter, and five standard errors of 120 points.
        assert side.fit["test"] < 0.25 + 5 * (0.25 * 0.75 / 120) ** 0.5
        assert side.points.dtype == torch.float64
        assert int(side.member.sum()) == 120
        assert side.some(10).fit["train"] > 0.99
    seen = [{tuple(row) for row in side.points.tolist()} for side in pair]
    assert not seen[0] & seen[1]


def test_split_and_seed_fix_everything(monkeypatch):
    task = noise_labels.task(monkeypatch, epochs=1)
    data = shadow_pairs.load(task)
    first, again, other = (
        shadow_pairs.train_pair(data, task, split=split, seed=seed).target for split, seed in ((1, 0), (1, 0), (0, 1))
    )
    assert torch.equal(first.network.weights[0], again.network.weights[0])
    assert not torch.equal(first.points, other.points)


def test_the_tasks_of_the_book_are_those_of_the_thesis():
    assert shadow_pairs.TASKS["location"].size == 1252
    assert shadow_pairs.TASKS["adult"].size == 2500


def test_bad_input_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="quarter of 50"):
        shadow_pairs.quarters(50, size=13, generator=stream(0, "rows"))
    with pytest.raises(ValueError, match="data"):
        Task("purchase", size=10, hidden=(3,), recipe=Recipe(1, 10))
    task = noise_labels.task(monkeypatch, epochs=1)
    with pytest.raises(ValueError, match="hidden"):
        Task("noise labels", size=10, hidden=(), recipe=task.recipe)
    features, labels = shadow_pairs.load(task)
    with pytest.raises(ValueError, match="two classes"):
        shadow_pairs.train_pair(Labelled(features, torch.zeros_like(labels)), task, split=0, seed=0)
    side = shadow_pairs.train_pair(Labelled(features, labels), task, split=0, seed=0).target
    with pytest.raises(ValueError, match="count"):
        side.some(121)


def test_the_sets_that_readers_bring_are_read_by_their_own_loaders(monkeypatch):
    bits, labels = torch.ones(4, 3, dtype=torch.uint8), torch.arange(4)
    monkeypatch.setattr(shadow_pairs.purchase, "load", lambda: shadow_pairs.purchase.PurchaseSet(bits, labels))
    monkeypatch.setattr(shadow_pairs.texas, "load", lambda: shadow_pairs.texas.TexasSet(bits, labels))
    for name in ("purchase100", "texas100"):
        data = shadow_pairs.load(shadow_pairs.TASKS[name])
        assert data.features.dtype == torch.float32
        assert torch.equal(data.labels, labels)
    messages = shadow_pairs.newsgroups.MessageSet(("one", "two", "three"), torch.arange(3), ("a", "b", "c"))
    monkeypatch.setattr(shadow_pairs.newsgroups, "load", lambda: messages)
    whole = shadow_pairs.newsgroups.tf_idf
    monkeypatch.setattr(shadow_pairs.newsgroups, "tf_idf", lambda training: whole(training, features=3))
    assert shadow_pairs.load(shadow_pairs.TASKS["20newsgroups"]).features.shape == (3, 3)
