"""The size of an answer finds planted members, sees nothing where nothing is, and never uses a margin that is none."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership import margin
from leakage.membership.margin import (
    distance_score,
    find_member,
    one_sided_score,
    size_score,
)
from leakage.metrics import roc
from leakage.precision import DTYPE
from planted import doubles
from reproduced.papers.kkt_margin.network_intervals import network_margin, share_above, share_up_to
from reproduced.papers.kkt_margin.trained_networks import candidate_groups
from reproduced.runtime import stream

NETS, MEMBERS, FRESH = 6, 20, 900


def world(*, spread=0.1, seed=0):
    """Networks with margin 4: members answer ±4 up to rounding, fresh points N(0, (4·spread)²)."""
    generator = stream(seed, "answers")
    signs = 2.0 * torch.randint(2, (NETS, MEMBERS), generator=generator).double() - 1
    return 4 * signs, 4 * spread * gaussian((NETS, FRESH), generator=generator), torch.full((NETS,), 4.0, dtype=DTYPE)


def test_both_readings_of_the_margin_agree_exactly_where_all_labels_are_fitted():
    found = network_margin(doubles([3.0, 2.0, 5.0], [3.0, -2.0, 5.0], [3.0, 0.0, 5.0]))
    assert found.absolute.tolist() == [2.0, 2.0, 0.0]
    assert found.signed.tolist() == [2.0, -2.0, 0.0]
    assert found.exists.tolist() == [True, False, False]


def test_the_shares_of_the_figures_by_hand():
    outputs = doubles([-1.0, 1.1, 1.11, -0.99, 0.0], [2.0, -2.3, 2.1, 1.9, 0.0])
    level = doubles(1.0, 2.0)
    assert share_up_to(outputs, level).tolist() == pytest.approx([0.8, 0.8])
    assert share_above(outputs, level).tolist() == pytest.approx([0.6, 0.6])
    assert share_up_to(outputs, level, slack=0.0).tolist() == pytest.approx([0.6, 0.6])
    assert share_above(outputs, level, slack=0.1).tolist() == pytest.approx([0.8, 0.8])


def test_scaling_a_network_changes_no_verdict_of_an_attacker_who_knows_its_margin():
    members, fresh, level = world(spread=0.5)
    for judge in (margin.flag_above, share_up_to, share_above):
        for outputs in (members, fresh):
            torch.testing.assert_close(judge(outputs, level), judge(1024 * outputs, 1024 * level))


def test_planted_members_are_found_by_every_attacker():
    members, fresh, level = world()
    group = candidate_groups(member=members, outsider=fresh)
    leak = find_member(group)
    assert bool((leak.index == 9).all())
    assert bool((leak.margin == 4).all())
    for verdict in (
        lambda x: margin.flag_above(x, level),
        lambda x: margin.flag_above(x, margin.shadow_margin(level)),
    ):
        assert bool(verdict(members).all())
        assert not verdict(fresh).any()  # 2 is 5 standard deviations: 5400 draws pass it with probability 0.003


def test_members_that_answer_like_fresh_points_are_not_found():
    generator = stream(0, "blind")
    outputs = gaussian((2, 4000), generator=generator)
    error = math.sqrt((2 * 4000 + 1) / (12 * 4000**2))  # Mann–Whitney, no ties
    for scores in (
        size_score(outputs),
        distance_score(outputs, doubles(1.0)),
        one_sided_score(outputs, doubles(1.0)),
    ):
        assert abs(roc.auc(member=scores[0], outsider=scores[1]).estimate - 0.5) < 4 * error


def test_a_member_like_all_others_is_named_as_often_as_chance_has_it():
    generator = stream(1, "blind")
    members, fresh = gaussian((1, 20), generator=generator), gaussian((1, 18_000), generator=generator)
    groups = candidate_groups(member=members, outsider=fresh, size=4)
    # Members take turns and so are no independent draws: shuffle who sits in the last place.
    order = torch.rand(groups.shape, generator=generator).argsort(-1)
    hits = (find_member(groups.gather(-1, order)).index == 3).double()
    assert abs(float(hits.mean()) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / hits.numel())


def test_only_the_distance_to_the_margin_tells_a_member_from_a_louder_fresh_point():
    members, fresh, level = world(spread=10.0)
    loud = fresh[fresh.abs() > 4.1]
    assert roc.auc(member=size_score(members).flatten(), outsider=size_score(loud)).estimate == pytest.approx(0.0)
    assert roc.auc(
        member=distance_score(members, level).flatten(), outsider=distance_score(loud, level[0])
    ).estimate == pytest.approx(1.0)


def test_an_answer_below_the_margin_proves_a_stranger():
    outputs, level = doubles([0.0, 1.0, 2.9, 3.0, -3.0, -4.0, 30.0]), doubles(3.0)
    expected = doubles([-1.0, -2 / 3, -1 / 30, 1.0, 1.0, 0.75, 0.1])
    torch.testing.assert_close(one_sided_score(outputs, level), expected)
    loose = one_sided_score(outputs, level, slack=0.05)
    torch.testing.assert_close(loose[0, 2], 2.9 / level[0])
    torch.testing.assert_close(loose[0, [0, 1, 3, 4, 5, 6]], expected[0, [0, 1, 3, 4, 5, 6]])


def test_the_member_found_by_hand():
    leak = find_member(doubles([0.9, -2.0, 0.99], [0.9, -2.0, 1.0], [-2.0, 0.1, 2.0]))
    assert leak.index.tolist() == [1, 1, 0]
    assert leak.margin.tolist() == [2.0, 2.0, 2.0]
    assert leak.unique.tolist() == [True, False, False]


def test_a_line_up_uses_no_fresh_point_twice_and_all_members_in_turn():
    members, fresh = doubles([-1.0, -2.0]), torch.arange(11, dtype=DTYPE).unsqueeze(0)
    groups = candidate_groups(member=members, outsider=fresh, size=3)
    assert groups.tolist() == [[[2.0 * g, 2.0 * g + 1, -1.0 - g % 2] for g in range(5)]]


def test_a_shadow_margin_is_the_mean_of_all_other_networks():
    found = margin.shadow_margin(doubles([1.0, 2.0, 6.0], [3.0, 3.0, 3.0]))
    torch.testing.assert_close(found, doubles([4.0, 3.5, 1.5], [3.0, 3.0, 3.0]))
