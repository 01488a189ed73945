"""An audit takes any design in any form, finds what leaks and nothing else, and says what it cannot show."""

import functools
import hashlib
import html
import json
import math
import operator
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage import audit
from leakage.audit import notes, run
from leakage.audit.gates import Gate
from leakage.audit.inputs import inputs_from_file, validate_inputs
from leakage.data.membership_splits import complementary_masks
from leakage.membership.evaluation import evaluate, model_groups
from leakage.membership.lira import lira, lira_of_logits
from leakage.membership.table import ATTACKS, Attack
from leakage.membership.trained_models import TrainedModels
from leakage.metrics.estimates import Estimate
from leakage.metrics.scores import FPRS, rates, round_digits
from planted import draw_losses
from reproduced.runtime import stream

ROWS = 400
ONLINE = {"loss", "sample threshold", "calibrated loss", "LiRA", "LiRA, own variance", "RMIA"}
OFFLINE = {"loss", "calibrated loss", "LiRA, offline", "RMIA, offline"}


def pairs(models=8, rows=ROWS):
    return complementary_masks(rows, models, generator=stream(0, "halves"))[0].numpy()


def subsets(models=8, rows=ROWS):
    return (torch.rand(models, rows, generator=stream(0, "subsets")) < 0.5).numpy()


def apart(models=8, rows=ROWS):
    """The members of model 0, whose shadow models saw none of the rows."""
    member = np.zeros((models, rows), dtype=bool)
    member[0] = subsets(1, rows)[0]
    return member


def some_losses(member, shift=0.0, name="losses"):
    return draw_losses(torch.as_tensor(member), shift, name=name).numpy()


DESIGNS = {
    "pairs": (pairs(), None, ONLINE),
    "odd rows": (pairs(rows=ROWS - 1), None, ONLINE),
    "subsets": (subsets(), None, ONLINE),
    "one target": (subsets(), 3, ONLINE),
    "one target, its partner left out": (pairs(), 3, ONLINE),
    "offline": (apart(), None, OFFLINE),
    "one model": (subsets(1), None, {"loss"}),
    "two models": (subsets(2), None, {"loss", "calibrated loss"}),
    "one pair": (pairs(2), None, {"loss"}),
    "one split": (np.tile(subsets(1), (8, 1)), None, {"loss"}),
    "two pairs": (pairs(4), None, {"loss", "sample threshold", "calibrated loss"}),
}


@functools.cache
def leaking(design):
    """The audit of models that leak, of a design that several tests look at."""
    member, target, _ = DESIGNS[design]
    return audit.of_losses(some_losses(member, 2.0), member, target=target, groups=["x"] * member.shape[1])


def cells(table):
    """What a table says, with an interval as its three numbers."""
    parts = []
    for cell in (cell for row in table.rows for cell in row):
        parts += [cell.estimate, cell.low, cell.high] if isinstance(cell, Estimate) else [cell]
    return parts


each_design = pytest.mark.parametrize("design", DESIGNS)


@each_design
def test_a_design_has_the_attacks_that_it_allows(design):
    (member, target, expected), found = DESIGNS[design], leaking(design)
    assert {row.attack for row in found.results} == expected
    assert all(row.auc.estimate > 0.6 for row in found.results)
    right = some_losses(member, 2.0) < math.log(2)
    more = audit.of_losses(some_losses(member, 2.0), member, target=target, correct=right)
    assert {row.attack for row in more.results} == expected | {"gap"}


@each_design
def test_models_that_never_saw_a_row_have_an_auc_of_one_half(design):
    member, target, _ = DESIGNS[design]
    found = audit.of_losses(some_losses(member), member, target=target, fprs=(), level=0.99)
    for row in found.results:
        assert row.auc.low < 0.5 < row.auc.high, row
        assert row.advantage.low <= 0 <= row.advantage.high, row


def test_the_numbers_are_those_of_the_attack_and_the_metrics():
    member = pairs()
    losses = some_losses(member, 2.0)
    partner = torch.arange(8) ^ 1
    expected = rates(
        lira(torch.tensor(losses), torch.tensor(member), partner),
        member=torch.tensor(member),
        fprs=[0.01],
    )
    (row,) = (row for row in audit.of_losses(losses, member).results if row.attack == "LiRA")
    assert row.auc.estimate == pytest.approx(float(expected["auc"].mean()))
    assert row.advantage.estimate == pytest.approx(float(expected["advantage"].mean()))
    assert row.tpr[0.01].estimate == pytest.approx(float(expected["tpr_at_0.01"].mean()))
    assert row.tpr[0.001] is None


def test_pairs_are_found_in_any_order_and_used_once():
    member = pairs()
    order = [5, 0, 3, 7, 1, 2, 4, 6]
    partner = validate_inputs(some_losses(member)[order], member[order]).models.partner.tolist()
    assert [order[place] for place in partner] == [model ^ 1 for model in order]
    twice = np.concatenate([member[:2], member[:2]])
    assert sorted(validate_inputs(some_losses(twice), twice).models.partner.tolist()) == [0, 1, 2, 3]
    assert validate_inputs(some_losses(subsets()), subsets()).models.partner is None


FORMS = {
    "torch": torch.as_tensor,
    "lists": lambda values: values.tolist(),
    "float32": lambda values: values.astype(np.float32) if values.dtype == float else values,
    "big-endian": lambda values: values.astype(">f8") if values.dtype == float else values,
    "numbers for truth": lambda values: values.astype(int) if values.dtype == bool else values,
    "read only": lambda values: np.broadcast_to(values, values.shape),
    "requires grad": lambda values: torch.tensor(values, requires_grad=True) if values.dtype == float else values,
}


@pytest.fixture(scope="module")
def in_numpy():
    member = subsets(5, 100)
    losses = some_losses(member, 2.0)
    return losses, member, audit.of_losses(losses, member).strongest


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same(form, in_numpy):
    losses, member, expected = in_numpy
    found = audit.of_losses(form(losses), form(member), labels=form(np.arange(100) % 3)).strongest
    assert found.auc.estimate == pytest.approx(expected.auc.estimate, abs=1e-4)  # float32 rounds


def test_a_target_whose_references_saw_nothing_needs_one_row_of_members():
    member = apart()
    losses = some_losses(member, 2.0)
    first, second = audit.of_losses(losses, member), audit.of_losses(losses, member[0], target=0)
    assert str(first) == str(second)


@pytest.mark.parametrize("design", ["pairs", "subsets", "offline"])
@settings(max_examples=1)
@given(random=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(random, design):
    member, target, _ = DESIGNS[design]
    losses, labels = some_losses(member, 1.0), np.arange(ROWS) % 4
    order = np.array(random.sample(range(ROWS), ROWS))
    before = audit.of_losses(losses, member, target=target, labels=labels)
    after = audit.of_losses(losses[:, order], member[:, order], target=target, labels=labels[order])
    assert cells(before.table()) == pytest.approx(cells(after.table()))
    assert cells(before.slices()) == pytest.approx(cells(after.slices()))
    numbers = [[record[key] for key in ("found", "outranks")] for record in before.exposed_rows(30)]
    moved = [[record[key] for key in ("found", "outranks")] for record in after.exposed_rows(30)]
    assert np.allclose(numbers, moved)


def test_planted_rows_are_the_most_exposed():
    member = pairs()
    losses = some_losses(member, 0.0)
    planted = [3, 50, 301]
    losses[:, planted] = np.where(member[:, planted], 1e-6, 5.0)
    found = audit.of_losses(losses, member, labels=["a", "b"] * (ROWS // 2), groups=np.arange(ROWS) // 100)
    first = [found.exposed_rows(3)[place] for place in range(3)]
    assert {record["row"] for record in first} == set(planted)
    assert all(record["found"] == record["of models"] == 4 for record in first)
    assert {record["label"] for record in first} == {"a", "b"}
    assert {record["group"] for record in first} == {"0", "3"}


def test_a_row_found_often_comes_before_one_that_was_found_once():
    member = subsets()
    member[:, :2] = False
    member[0, 0], member[:7, 1] = True, True
    losses = some_losses(member, 0.0)
    losses[:, :2] = np.where(member[:, :2], 1e-6, 5.0)
    first, second = audit.of_losses(losses, member, fprs=(0.05,)).exposed_rows(2)
    assert (first["row"], first["of models"]) == (1, 7)
    assert second["found"] >= second["of models"] / 2


def test_a_slice_that_leaks_is_told_from_one_that_does_not():
    member = pairs(8, 600)
    leaking = np.arange(600) % 2 == 0
    losses = some_losses(member * leaking, 4.0)
    rows = {row["slice"]: row for row in audit.of_losses(losses, member, groups=leaking).slices()}
    assert rows["True"]["AUC"].low > 0.9
    assert rows["False"]["AUC"].estimate < 0.6
    assert rows["True"]["TPR at 1 % FPR"].low > rows["False"]["TPR at 1 % FPR"].high


def test_a_small_slice_says_so():
    labels = ["many"] * (ROWS - 6) + ["few"] * 6
    few, many = audit.of_losses(some_losses(pairs()), pairs(), labels=labels).slices()
    assert (few["slice"], few["AUC"], many["note"]) == ("few", None, "")
    assert "too few" in few["note"]


def duplicated(member):
    losses = some_losses(member, 1.0)
    losses[:, 1] = losses[:, 0]
    return losses


def balanced():
    """Every row in exactly half of the models, not in pairs."""
    rank = torch.rand(8, ROWS, generator=stream(0, "balanced")).argsort(0).argsort(0)
    return (rank < 4).numpy()


def with_infinity(member):
    losses = some_losses(member)
    losses[0, :3] = math.inf
    return losses


def with_a_lost_model(member):
    losses = some_losses(member)
    losses[3] += 1e4
    return losses


SAID = {
    "Model 3 gives most rows of `losses`": (with_a_lost_model, pairs(), {}),
    "1,000 outsiders": (some_losses, pairs(), {}),
    "is optimistic": (duplicated, pairs(), {}),
    "may win by counting": (some_losses, balanced(), {}),
    "only offline attacks": (some_losses, apart(), {}),
    "shadow models of a target tell who was a member": (some_losses, np.tile(subsets(1), (8, 1)), {}),
    "no shadow model": (some_losses, subsets(1), {}),
    "one shadow model": (some_losses, subsets(2), {}),
    "two shadow models of each kind": (some_losses, pairs(4), {}),
    "for this one model": (some_losses, subsets(), {"target": 0}),
    "are few for it": (some_losses, pairs(6), {}),
    "3 of 3,200 probabilities of the true label are 0 or 1": (with_infinity, pairs(), {}),
    "1 of 400 rows have a label that no other has": (some_losses, pairs(), {"labels": [1] + [0] * (ROWS - 1)}),
    "are these probabilities": (lambda member: np.exp(-some_losses(member, 2.0)), pairs(), {}),
    "is `member` turned over": (lambda member: some_losses(~member, 2.0), pairs(), {}),
}


@pytest.mark.parametrize(("wanted", "case"), SAID.items(), ids=SAID)
def test_what_a_design_cannot_show_is_said(wanted, case):
    losses, member, more = case
    assert any(wanted in note for note in audit.of_losses(losses(member), member, **more).notes)


@pytest.mark.parametrize("more", [{}, {"labels": np.arange(ROWS) % 3}, {"fprs": ()}], ids=["rows", "slices", "auc"])
def test_what_is_printed_and_what_a_notebook_shows_begin_with_the_same_sentence(more):
    found = audit.of_losses(some_losses(pairs(), 2.0), pairs(), **more)
    assert f"at least {found.at_least('auc'):.3f}" in found.sentence or found.headline != "auc"
    assert " ".join(str(found).split()).startswith(f"{found.sentence} attack sees")
    assert found._repr_html_().startswith(f"<p><strong>{html.escape(found.sentence)}</strong>")
    assert ("Worst slice" in found.sentence) == ("labels" in more)


def test_a_good_design_has_no_reservation():
    member = pairs(8, 2000)
    (note,) = audit.of_losses(some_losses(member), member).notes
    assert "8 models" in note


def test_coarse_losses_are_no_sign_of_duplicates():
    member = subsets(8, 60)
    losses = np.where(member, 0.1, np.arange(60) % 3 + 1.0)
    assert not notes.find_duplicate_losses(validate_inputs(losses, member).models)


BAD = {
    "NaN": (lambda x, m: (x * math.nan, m), {}, "diverged"),
    "negative": (lambda x, m: (-x, m), {}, "`losses` must be at least 0"),
    "transposed": (lambda x, m: (x.T, m), {}, "transposed"),
    "both transposed": (lambda x, m: (x.T, m.T), {}, r"400 models and 8 rows; .* give `losses\.T` and `member\.T`"),
    "one side": (
        lambda x, m: (None, None),
        {"member_losses": [1.0, 2.0]},
        "or else `member_losses` and `outsider_losses`",
    ),
    "sides of several models": (
        lambda x, m: (None, None),
        {"member_losses": np.ones((2, 9)), "outsider_losses": np.ones((2, 9))},
        "must be those of one model",
    ),
    "a row without a unit": (
        lambda x, m: (x, m),
        {"units": [*range(ROWS - 1), None]},
        "`units` must name the unit of every row, got none at row 399",
    ),
    "torn units": (
        lambda x, m: (x, m),
        {"units": np.arange(ROWS) // 2},
        r"`units` must be trained on as a whole .* model 0 was trained on some rows of '\d+' only",
    ),
    "an attack of the audit's own": (
        lambda x, m: (x, m),
        {"attacks": {"LiRA": lambda models: -models.losses}},
        "`attacks` must have names of",
    ),
    "empty": (lambda x, m: (x[:, :0], m[:, :0]), {}, r"`losses` must be \(models, rows\)"),
    "three axes": (lambda x, m: (x[None], m[None]), {}, r"`losses` must be \(models, rows\)"),
    "complex": (lambda x, m: (torch.from_numpy(x + 0j), m), {}, "`losses` must hold real numbers"),
    "texts": (lambda x, m: (x.astype(str), m), {}, "`losses` must hold numbers"),
    "ragged": (lambda x, m: ([[1.0], [1.0, 2.0]], m), {}, "`losses` must have rows of equal lengths"),
    "swapped": (lambda x, m: (m, x), {}, "swapped"),
    "truth values": (lambda x, m: (x > 1, m), {}, "`losses` must hold numbers, got truth values"),
    "nested": (
        lambda x, m: (torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), m),
        {},
        "`losses` must have rows of equal lengths, got a nested tensor",
    ),
    "all members": (lambda x, m: (x, m | True), {}, "2 members and 2 outsiders"),
    "one row of members": (lambda x, m: (x, m[0]), {}, "say which with `target`"),
    "no such target": (lambda x, m: (x, m), {"target": 8}, "`target` must be a whole number"),
    "population": (lambda x, m: (x, m), {"population": np.ones((3, 9))}, "`population` must have losses of all 8"),
    "population of NaN": (lambda x, m: (x, m), {"population": np.full((8, 9), np.nan)}, "`population` must be finite"),
    "name of a column": (lambda x, m: (x, m), {"groups": "ward"}, "got 'ward'; give the column"),
    "ragged groups": (lambda x, m: (x, m), {"groups": [[1], [1, 2]] * 200}, "`groups` must be one for each of the 400"),
    "correct": (lambda x, m: (x, m), {"correct": np.ones(9)}, "`correct` must be of the shape"),
    "labels": (lambda x, m: (x, m), {"labels": [1, 2]}, "`labels` must be one for each"),
    "rates": (lambda x, m: (x, m), {"fprs": [0.0]}, "`fprs` must be a number finite and above 0"),
    "level": (lambda x, m: (x, m), {"level": 1.0}, "`level` must be a number"),
}


@pytest.mark.parametrize(("spoil", "more", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_with_the_cure(spoil, more, message):
    member = pairs()
    with pytest.raises((TypeError, ValueError), match=message):
        audit.of_losses(*spoil(some_losses(member), member), **more)


@pytest.mark.parametrize("wrap", [np.float32, np.float64, torch.tensor, list])
def test_a_rate_is_the_same_in_any_precision(wrap):
    assert run.check_options(wrap([0.1, 0.05]), 0.95).fprs == (0.1, 0.05)


def turned(models, rows, seed):
    """Tables of random subsets, with rows that are easy or hard for all models, transposed."""
    member = torch.rand(models, rows, generator=stream(seed, "turned")) < 0.5
    return draw_losses(member, 0.5).T, member.T


@pytest.mark.parametrize("models", [8, 16, 40])
def test_tables_that_are_surely_transposed_are_refused(models):
    with pytest.raises(ValueError, match=r"give `losses\.T` and `member\.T`"):
        audit.of_losses(*turned(models, 300, 0))


@pytest.mark.parametrize(("models", "rows", "seed"), [*((6, 5, seed) for seed in range(4)), (60, 20, 0)])
def test_a_few_rows_under_many_models_are_audited_with_a_note(models, rows, seed):
    member = (torch.rand(models, rows, generator=stream(seed, "many models")) < 0.5).numpy()
    member[:, :4] = [True, True, False, False]
    for losses in (draw_losses(torch.as_tensor(member), 0.5).numpy(), np.full(member.shape, 0.3)):
        notes_on = audit.of_losses(losses, member, fprs=(0.5,)).notes
        assert any(
            f"There are {models} models and {rows} rows; if both arrays are transposed" in one for one in notes_on
        )


def test_labels_may_be_missing_and_units_may_not():
    labels = np.array([None if row % 10 == 0 else "ab"[row % 2] for row in range(ROWS)])
    found = audit.of_losses(some_losses(pairs()), pairs(), labels=labels)
    assert [row["slice"] for row in found.slices()] == ["a", "b", "missing"]
    with pytest.raises(ValueError, match="`units` must name the unit of every row, got none at row 0"):
        audit.of_losses(some_losses(pairs()), pairs(), units=labels)


@pytest.mark.parametrize(("members", "outsiders"), [(0.3, 1.3), (0.2, 1.2), (0.1 + 0.2, 1.3), (1e-9, 3.0)])
def test_one_loss_of_all_members_is_at_their_mean(members, outsiders):
    found = audit.of_losses(member_losses=np.full(300, members), outsider_losses=np.full(300, outsiders))
    assert (found.strongest.auc.estimate, found.strongest.advantage.estimate) == pytest.approx((1, 1))


def test_the_bound_of_the_best_attack_allows_for_the_choice():
    member = pairs()
    found = audit.of_losses(some_losses(member, 1.0), member)
    for metric, lows in {
        "auc": [row.auc.low for row in found.results],
        "advantage": [row.advantage.low for row in found.results],
        "tpr@0.01": [row.tpr[0.01].low for row in found.results],
    }.items():
        assert found.at_least(metric) < max(lows)
    alone = audit.of_losses(some_losses(subsets(1), 1.0), subsets(1))
    assert alone.at_least("auc") == pytest.approx(alone.strongest.auc.low)  # one attack: nothing was chosen
    for metric, message in {"AUC": "must be one of", "tpr@2": "must be one of", "tpr@0.0001": "10,000 or more"}.items():
        with pytest.raises(ValueError, match=message):
            found.at_least(metric)


def test_where_all_models_agree_the_interval_is_that_of_one():
    member = pairs()
    losses = np.where(member, 0.1, 5.0) + np.arange(ROWS) * 1e-6
    loss = audit.of_losses(losses, member).results[0]
    assert loss.auc.estimate == pytest.approx(1.0)
    assert 0.9 < loss.auc.low < 1.0


def test_a_population_takes_the_place_of_the_pool():
    member = subsets()
    losses, others = some_losses(member, 2.0), some_losses(np.zeros((8, 50), dtype=bool), name="others")
    changed = audit.of_losses(losses, member, population=others)
    assert not np.allclose(changed.scores["RMIA"], leaking("subsets").scores["RMIA"])


@pytest.mark.parametrize("design", ["pairs", "one model"])
def test_the_report_is_one_page_that_asks_nobody_and_obeys_nobody(design, tmp_path):
    member, target, _ = DESIGNS[design]
    hostile = np.where(np.arange(ROWS) % 2, "<script>alert(1)</script>", "a & b")
    found = audit.of_losses(some_losses(member, 2.0), member, target=target, labels=hostile)
    text = found.report(tmp_path / "audit.html").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["audit.html"]
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(?:src|href)=\"(?!#)|@import|url\((?!#)", text)
    assert text.count("<svg") == 1
    if design == "one model":
        assert found.report(tmp_path / "audit.html").read_text("utf-8") == text


@each_design
def test_json_is_strict_and_complete(design):
    result = leaking(design)
    gates = result.judge([Gate("auc", 0.5), Gate("auc", 0.99 * result.lower_end("auc").attainable)])
    text = result.to_json(gates=gates)
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["schema"] == 1
    assert {row["attack"] for row in found["attacks"]} == DESIGNS[design][2]
    assert all(row["sentence"] for row in found["attacks"])
    assert found["attacks"][0]["tpr"][1] == {"fpr": 0.001, "estimate": None, "low": None, "high": None}
    assert len(found["exposed_rows"]) == 20
    assert found["slices"][0]["slice"] == "x"
    assert [gate["failed"] for gate in found["gates"]] == [True, False]
    assert (found["verdict"], json.loads(result.to_json())["verdict"]) == ("failed", None)
    parts = [found, *(row for key in ("attacks", "exposed_rows", "slices", "gates") for row in found[key])]
    assert all(re.fullmatch("[a-z_]+", key) for part in parts for key in part)


def test_the_report_says_what_was_judged_and_what_each_attack_does(tmp_path):
    result = leaking("pairs")
    file = tmp_path / "scores.npz"
    file.write_bytes(b"scores")
    gates = result.judge([Gate("auc", 0.5)])
    text = result.report(tmp_path / "audit.html", title="Model <7>", gates=gates, source=file).read_text("utf-8")
    assert text.count("Model &lt;7&gt;") == 2
    assert hashlib.sha256(b"scores").hexdigest() in text
    assert "complementary pairs" in text
    assert "Gates: failed" in text
    assert all(html.escape(ATTACKS[row.attack].sentence) in text for row in result.results)


def measured_alone(scores, member, fpr):
    """AUC, advantage and TPR of one target, by their definitions, of scores to nine digits."""
    scores = round_digits(scores)
    inside, outside = scores[member], scores[~member]
    wins = (inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside).double()
    spared = outside.sort(descending=True).values[int(fpr * len(outside))]
    positive = (inside > 0).double().mean() - (outside > 0).double().mean()
    return torch.stack([wins.mean(), positive, (inside > spared).double().mean()])


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("member", [pairs(8, 60), subsets(5, 61)], ids=["pairs", "subsets"])
def test_errors_are_what_the_definitions_give_on_what_is_left(member, coarse):
    losses = some_losses(member, 1.0)
    models = validate_inputs((4 * losses).round() / 4 if coarse else losses, member, correct=losses < 0.5).models
    left = [models.leave_out(group) for group in model_groups(models)]
    attacks = [name for name in run.possible_attacks(models) if name != "loss"]  # whose scores have no sign
    found = evaluate(models, attacks).standard_errors(["auc", "advantage", "tpr@0.07"])
    each = [{name: one.scores for name, one in evaluate(rest, attacks).results.items()} for rest in left]
    assert len(found) == len(each[0]) == 6
    for name, errors in found.items():
        values = [
            torch.stack(
                [measured_alone(*row, 0.07) for row in zip(scores[name], rest.target_member, strict=True)]
            ).mean(0)
            for scores, rest in zip(each, left, strict=True)
        ]
        expected = (torch.stack(values).var(0, correction=0) * (len(left) - 1)).sqrt()
        assert torch.allclose(
            torch.tensor([errors[metric] for metric in ("auc", "advantage", "tpr@0.07")]).double(), expected, atol=1e-12
        ), name


@pytest.mark.parametrize(("units", "expected"), [(4, 4), (10, 10), (23, 10)])
@pytest.mark.parametrize("design", [subsets, lambda units, rows: pairs(2 * units, rows)])
def test_partners_are_left_out_together_and_everybody_once(units, expected, design):
    member = design(units, 60)
    models = validate_inputs(some_losses(member), member).models
    parts = model_groups(models)
    assert len(parts) == expected
    assert sorted(model for part in parts for model in part) == list(range(len(member)))
    if models.partner is not None:
        assert all({int(models.partner[model]) for model in part} == set(part) for part in parts)


@pytest.mark.slow
def test_intervals_over_models_cover_one_half_where_nothing_leaks():
    """Models share their shadow models: the plain error of a mean would cover in 84 of 100 cases, for LiRA."""
    draws = np.random.default_rng(0)
    missed = dict.fromkeys(ONLINE, 0)
    for _ in range(30):
        member = draws.random((7, 60)) < 0.5
        for row in audit.of_losses(draws.exponential(size=member.shape), member, fprs=()).results:
            missed[row.attack] += not row.auc.low <= 0.5 <= row.auc.high
    # Of 30 intervals that cover in 95 of 100 cases, more than 5 miss with a chance of 0.003.
    assert max(missed.values()) <= 5


# ── coarse probabilities ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chances", "floor"),
    [
        ([0.2, 0.9], 0.0),
        ([0.0, 0.02, 0.5], 1e-2),
        ([0.0, 1e-4, 0.5], 5e-5),
        ([0.0, 1.0], 1e-3),  # no step is seen
        ([1.0, 0.5], 0.25),
        ([1e-12, 1.0, 0.1], 0.05),  # of somebody who clipped them
        ([0.0, 1e-9, 1e-7, 0.5], 2.0**-52),  # of all sizes
    ],
)
def test_coarse_probabilities_are_clipped_to_half_of_their_least_step(chances, floor):
    chance = np.array(chances * 20)
    with np.errstate(divide="ignore"):
        found = validate_inputs(-np.log(chance), np.arange(len(chance)) // len(chances) % 2 == 0)
    kept = np.exp(-found.models.losses.numpy())
    assert kept == pytest.approx(np.clip(chance, floor, 1 - floor)[None], rel=1e-9, abs=0)
    assert [f"[{floor:.2g}, 1 - {floor:.2g}]" in note for note in found.notes] == [True] * bool(floor)


def test_losses_of_a_network_stay_what_they_are():
    """Some of float32 round to 0, and some are as large as those of probabilities that float64 has not."""
    logits = 15 * torch.randn(5, ROWS, 2, generator=stream(0, "logits"))
    losses = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), torch.zeros(5, ROWS).long(), reduction="none")
    assert float(losses.min()) < 1e-9
    assert float(losses.max()) > 40
    found = validate_inputs(losses, subsets(5))
    torch.testing.assert_close(found.models.losses, losses)
    assert not found.notes


# ── units ───────────────────────────────────────────────────────────────────────────────────────────────────────────

VISITS = 4
PEOPLE = np.array([f"patient {number}" for number in range(ROWS // VISITS)])
VISITOR = np.arange(ROWS) % len(PEOPLE)


def by_person(design):
    """Members by the person whose visit a row is."""
    return design(8, len(PEOPLE))[:, VISITOR]


@pytest.mark.parametrize("design", [pairs, subsets])
def test_units_of_one_row_change_nothing(design):
    losses = some_losses(design(), 1.0)
    known = {"labels": np.arange(ROWS) % 3, "groups": np.arange(ROWS) % 2}
    alone, named = (audit.of_losses(losses, design(), units=units, **known) for units in (None, np.arange(ROWS)))
    assert cells(alone.table()) == pytest.approx(cells(named.table()))
    assert cells(alone.slices()) == pytest.approx(cells(named.slices()))
    assert [row["row"] for row in alone.exposed_rows()] == [int(row["unit"]) for row in named.exposed_rows()]


def test_all_numbers_are_of_units_whose_scores_are_means():
    member = by_person(pairs)
    losses = some_losses(member, 1.0)
    rows, people = (audit.of_losses(losses, member, units=units) for units in (None, PEOPLE[VISITOR]))
    assert people.member.shape == (8, len(PEOPLE))
    assert people.outsiders == len(PEOPLE) // 2
    for name, scores in people.scores.items():
        expected = rows.scores[name].reshape(8, VISITS, len(PEOPLE)).mean(1)
        assert scores == pytest.approx(expected, abs=1e-9)
        assert people.interval(name, "auc").estimate > rows.interval(name, "auc").estimate + 0.02
    assert {record["unit"] for record in people.exposed_rows()} < {*PEOPLE}
    assert any("100 units" in note for note in people.notes)
    assert "of 100 units the strongest attack" in people.sentence


@pytest.mark.parametrize("design", [pairs, subsets, lambda models, rows: subsets(1, rows)])
def test_units_that_no_model_saw_have_an_auc_of_one_half(design):
    member = by_person(design)
    found = audit.of_losses(some_losses(member), member, units=VISITOR, fprs=(), level=0.99)
    for row in found.results:
        assert row.auc.low < 0.5 < row.auc.high, row
        assert row.advantage.low <= 0 <= row.advantage.high, row


def test_a_unit_has_the_label_that_all_of_its_rows_have():
    member = by_person(pairs)
    sex, visit = np.where(VISITOR < 50, "f", "m"), np.arange(ROWS) // len(PEOPLE)
    found = audit.of_losses(some_losses(member), member, units=VISITOR, labels=sex, groups=visit)
    expected = [("label", "f"), ("label", "m"), ("group", "several")]
    assert [(row["by"], row["slice"]) for row in found.slices()] == expected


# ── losses that are no probabilities, one model, own attacks ────────────────────────────────────────────────────────


@pytest.mark.parametrize("design", ["pairs", "subsets", "offline", "one model"])
def test_losses_that_are_no_probabilities_may_have_any_unit_and_sign(design):
    member, target, expected = DESIGNS[design]
    errors = some_losses(member, 2.0) ** 2
    found, moved = (
        audit.of_losses(values, member, target=target, probabilities=False) for values in (errors, 1e4 * errors - 5e3)
    )
    assert {row.attack for row in found.results} == expected
    for row, other in zip(found.results, moved.results, strict=True):
        assert row.auc.estimate == pytest.approx(other.auc.estimate, abs=1e-4)
        assert row.auc.estimate > 0.6
    assert found.notes == moved.notes
    assert not any("probabilit" in note or "diverged" in note for note in found.notes)


def test_lira_compares_losses_that_are_no_probabilities_themselves():
    member = subsets()
    errors = some_losses(member, 2.0) ** 2
    expected = rates(lira_of_logits(-torch.tensor(errors), torch.tensor(member)), member=torch.tensor(member), fprs=())
    found = audit.of_losses(errors, member, probabilities=False)
    assert found.interval("LiRA", "auc").estimate == pytest.approx(float(expected["auc"].mean()), abs=1e-6)


def test_one_model_is_given_by_the_losses_of_both_sides():
    member = np.arange(ROWS) < 150
    losses = some_losses(member, 2.0)
    expected = audit.of_losses(losses, member, labels=np.arange(ROWS) % 3)
    found = audit.of_losses(member_losses=losses[:150], outsider_losses=losses[150:], labels=np.arange(ROWS) % 3)
    assert str(found) == str(expected)
    assert str(found.slices()) == str(expected.slices())


TWICE = np.arange(2 * ROWS) // 2  # the unit of each of two rows


def _audited(design, **more):
    member, target, _ = DESIGNS[design]
    return audit.of_losses(some_losses(member), member, target=target, **more)


@pytest.mark.parametrize(
    "found",
    [
        *(functools.partial(_audited, design) for design in DESIGNS),
        functools.partial(_audited, "pairs", correct=subsets(), labels=range(ROWS), groups=["a", "b"] * (ROWS // 2)),
        functools.partial(_audited, "subsets", population=some_losses(subsets(), name="others"), probabilities=False),
        lambda: audit.of_losses(some_losses(pairs())[:, TWICE], pairs()[:, TWICE], units=TWICE, labels=TWICE % 5),
        lambda: audit.of_losses(np.round(some_losses(pairs()), 1), pairs()),  # coarse ones are clipped once
        lambda: audit.of_models(TrainedModels.from_losses(*map(torch.from_numpy, (some_losses(pairs()), pairs())))),
    ],
)
def test_losses_that_an_audit_saves_have_the_same_audit(found, tmp_path):
    saved = found()
    again = run.run_audit(inputs_from_file(saved.save_losses(tmp_path / "scores.npz")), run.check_options(FPRS, 0.95))
    assert str(again).partition("*")[0] == str(saved).partition("*")[0]
    assert str(again.slices()) == str(saved.slices()) if saved.labels is not None else True


def test_several_chosen_targets_are_not_saved_as_all(tmp_path):
    tables = map(torch.from_numpy, (some_losses(pairs()), pairs()))
    found = audit.of_models(TrainedModels.from_losses(*tables, targets=(1, 2)))
    with pytest.raises(ValueError, match="several targets"):
        found.save_losses(tmp_path / "scores.npz")


def test_an_attack_of_your_own_is_judged_like_all_others():
    member = pairs()
    losses = some_losses(member)
    found = audit.of_losses(losses, member, attacks={"mine": lambda models: -models.losses.sqrt()})
    mine, loss = (next(row for row in found.results if row.attack == name) for name in ("mine", "loss"))
    assert "mine" in str(found.table())
    assert mine.auc.estimate == pytest.approx(loss.auc.estimate)
    found = audit.of_losses(losses, member, attacks={"mine": lambda models: models.logits.sum(-1)})
    (note,) = (note for note in found.notes if "mine" in note)
    assert note.startswith("The attack 'mine' has no row: it needs")
    found = audit.of_losses(some_losses(member, 1.0), member, attacks={"mine": lambda models: models.losses})
    assert any("'mine' ranks outsiders above members" in note for note in found.notes)


def _with_a_generator(models, generator, scale=1.0):
    return -models.losses * scale


@pytest.mark.parametrize(
    "mine",
    [
        lambda models: -models.losses,
        lambda models, scale=2.0: -models.losses * scale,
        _with_a_generator,
        functools.partial(_with_a_generator, scale=2.0),
        Attack(_with_a_generator),
    ],
)
def test_an_attack_of_your_own_takes_the_models_or_also_a_generator(mine):
    member = pairs()
    found = audit.of_losses(some_losses(member), member, attacks={"mine": mine})
    rows = {row.attack: row.auc.estimate for row in found.results}
    assert rows["mine"] == pytest.approx(rows["loss"])
    evaluation = evaluate(found.evaluation.models, {"mine": mine})
    assert evaluation.results["mine"].rates["auc"].mean() == pytest.approx(rows["loss"])


def test_a_function_without_a_signature_is_one_of_the_models():
    member = pairs()
    found = audit.of_losses(some_losses(member), member, attacks={"mine": operator.attrgetter("losses")})
    rows = {row.attack: row.auc.estimate for row in found.results}
    assert rows["mine"] == pytest.approx(1 - rows["loss"])


@pytest.mark.parametrize("mine", [3, "loss", None, lambda: 0, lambda models, generator, more: 0])
def test_what_is_no_attack_is_refused_by_its_name(mine):
    member = pairs()
    with pytest.raises(TypeError, match="'mine' must be a function of the models, or"):
        audit.of_losses(some_losses(member), member, attacks={"mine": mine})


def test_numbers_as_groups_are_said_to_need_bands():
    member = pairs()
    for groups, noted in ((np.arange(ROWS) / 7, True), (np.arange(ROWS) % 4, False)):
        found = audit.of_losses(some_losses(member), member, groups=groups)
        assert any("into bands" in note for note in found.notes) == noted


@pytest.mark.parametrize("design", DESIGNS)
def test_only_an_attack_that_reads_the_targets_own_members_has_no_row(design):
    member, target, names = DESIGNS[design]
    honest = {f"my {name}": ATTACKS[name] for name in names}
    honest["drawn"] = Attack(lambda models, draws: torch.rand(models.member.shape, generator=draws).double())
    told = {"told": lambda models: models.member.double() - models.losses}
    found = audit.of_losses(some_losses(member), member, target=target, attacks=honest | told)
    assert [one.split("'")[1] for one in found.notes if "knows whom its target" in one] == ["told"]
    assert {row.attack for row in found.results} >= honest.keys()
    assert "told" not in {row.attack for row in found.results}


def test_what_is_probably_wrong_is_a_warning():
    member = pairs()
    swapped = audit.of_losses(np.exp(-some_losses(member, 2.0)), member)
    (warning,) = swapped.warnings
    assert "are these probabilities" in warning
    assert warning in swapped.notes
    assert not leaking("pairs").warnings
