"""Tables by name give back what was put in, whole and row by row, over splits and over targets."""

import pytest
import torch

from reproduced.studies.polytopes.standings import Standing, Table, over_splits, standing, table


def rows(shift: float) -> Table[Standing]:
    member = torch.tensor([True, True, False, False])
    scores = {"good": torch.tensor([4.0, 3.0, 2.0, 1.0]), "mixed": torch.tensor([4.0, 1.0, 3.0, 2.0])}
    return table(
        {name: standing(values + shift, member=member, rates=(0.5,), threshold=2.5) for name, values in scores.items()}
    )


def test_a_table_has_a_row_for_each_name():
    found = rows(0.0)
    assert found.names == ("good", "mixed")
    assert found.columns.auc.tolist() == pytest.approx([1, 0.5])
    assert float(found["good"].accuracy) == pytest.approx(1)
    assert {name: float(row.tpr) for name, row in found.rows()} == pytest.approx({"good": 1, "mixed": 0.5})


def test_splits_stand_behind_the_names():
    both = over_splits([rows(0.0), rows(-2.0)])
    assert both["good"].accuracy.tolist() == pytest.approx([1, 0.5])
    assert both.columns.tpr.shape == (2, 2, 1)


def test_without_a_threshold_the_best_one_counts():
    member = torch.tensor([True, False, True, False])
    assert float(standing(torch.tensor([1.0, 0.0, 9.0, -9.0]), member=member).accuracy) == pytest.approx(1)
