"""Splits of a pool into members and outsiders keep their promises."""

import pytest
import torch

from leakage.data import membership_splits as splits
from reproduced.runtime import stream


def test_pairs_are_complementary_halves():
    drawn = splits.complementary_pairs(40, 8, generator=stream(0, "splits"))
    assert drawn.rows.shape == (8, 20)
    assert drawn.partner.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    torch.testing.assert_close(drawn.member.sum(0), torch.full((40,), 4))
    torch.testing.assert_close(drawn.member, ~drawn.member[drawn.partner])
    torch.testing.assert_close(drawn.member.gather(-1, drawn.rows), torch.ones(8, 20, dtype=torch.bool))
    assert bool((drawn.member[0] != drawn.member[2]).any())


def test_leaving_the_pair_out_leaves_counts_that_tell_nothing():
    drawn = splits.complementary_pairs(40, 8, generator=stream(0, "splits"))
    for target in range(8):
        others = torch.ones(8, dtype=torch.bool)
        others[target] = False
        # Without the target alone, the count is 3 for its members and 4 for its outsiders: a perfect attack.
        torch.testing.assert_close(drawn.member[others].sum(0) == 3, drawn.member[target])
        others[drawn.partner[target]] = False
        torch.testing.assert_close(drawn.member[others].sum(0), torch.full((40,), 3))


def test_target_and_shadow_sets_are_disjoint():
    drawn = splits.target_and_shadow_sets(43, size=10, generator=stream(0, "splits"))
    assert drawn.shape == (4, 10)
    assert len(drawn.unique()) == 40


@pytest.mark.parametrize("points", [2, 9, 10])
def test_halves_of_any_number_of_points_are_complements(points):
    member, partner = splits.complementary_masks(points, 6, generator=stream(0, "halves"))
    torch.testing.assert_close(member, ~member[partner])
    sizes = member.sum(-1).tolist()
    assert {min(pair) for pair in zip(sizes[::2], sizes[1::2], strict=True)} == {points // 2}
    if points % 2:
        assert sizes[::2] == [4, 5, 4], "the larger half goes round"
