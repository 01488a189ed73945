"""Attack models find what is planted and nothing else."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership.attack_models import (
    MODELS,
    AttackTask,
    Settings,
    run_attack_models,
)
from leakage.metrics import roc
from leakage.trainers.ensembles import Recipe
from reproduced.runtime import stream

MEMBER = torch.arange(600) < 300
QUICK = Settings(recipe=Recipe(epochs=15, batch=100, learning_rate=1e-2), trees=40)


def planted(name: str, *, shift: float) -> dict[str, torch.Tensor]:
    features = gaussian((600, 3), generator=stream(0, name))
    features[MEMBER, 1] += shift
    return {"all": features, "first two": features[:, :2]}


def run(name, shadow, target, *, settings=QUICK, generator):
    """The scores of one task by itself."""
    return run_attack_models([AttackTask(name, shadow, MEMBER, target, generator)], settings=settings)[0]


def area(scores: torch.Tensor) -> float:
    return roc.auc(member=scores[MEMBER], outsider=scores[~MEMBER]).estimate


@pytest.mark.parametrize("name", list(MODELS))
def test_a_planted_shift_is_found_as_well_as_it_can_be(name):
    found = run(name, planted("shadow", shift=2.0), planted("target", shift=2.0), generator=stream(0, name))
    best = 0.5 * (1 + math.erf(2 / math.sqrt(2) / math.sqrt(2)))  # P(N(2, 1) > N(0, 1))
    assert set(found) == {"all", "first two"}
    # Four standard errors of an area at that height, below 0.012 each, and what fitting on 600 points loses.
    assert all(abs(area(scores) - best) < 0.06 for scores in found.values())


@pytest.mark.parametrize("name", list(MODELS))
def test_where_nothing_leaks_nothing_is_found(name):
    found = run(name, planted("shadow", shift=0.0), planted("target", shift=0.0), generator=stream(0, name))
    error = math.sqrt(601 / (12 * 300 * 300))  # Mann-Whitney, no ties
    assert all(abs(area(scores) - 0.5) < 4 * error for scores in found.values())


@pytest.mark.parametrize("name", ["NN", "NN standardised"])
def test_a_feature_set_does_not_see_the_columns_of_another(name):
    shadow, target = planted("shadow", shift=1.0), planted("target", shift=1.0)
    alone, beside = (
        run(
            name,
            {key: shadow[key] for key in keys},
            {key: target[key] for key in keys},
            generator=stream(0, "one"),
        )["first two"]
        for keys in (("first two",), ("first two", "all"))
    )
    # Only the shuffles may differ, so both rank the same points first.
    assert torch.corrcoef(torch.stack([alone, beside]))[0, 1] > 0.95


def test_tasks_run_together_have_the_scores_of_each_alone():
    shadow, target = planted("shadow", shift=1.0), planted("target", shift=1.0)
    narrow = {"one": shadow["all"][:, :1]}, {"one": target["all"][:, :1]}
    brief = Settings(recipe=Recipe(epochs=2, batch=100, learning_rate=1e-3), trees=5)
    given = [("NN", shadow, target), ("GBDT", *narrow), ("NN standardised", *narrow)]
    alone, draws = [], stream(0, "one")
    for name, known, asked in given:
        alone.append(run(name, known, asked, settings=brief, generator=draws))
    draws = stream(0, "one")
    tasks = [AttackTask(name, known, MEMBER, asked, draws) for name, known, asked in given]
    for first, second in zip(alone, run_attack_models(tasks, settings=brief), strict=True):
        assert first.keys() == second.keys()
        # A few dozen steps in float32, with other widths of the matrices.
        assert all(torch.allclose(first[key], second[key], atol=1e-4) for key in first)


@pytest.mark.parametrize("name", list(MODELS))
def test_what_was_not_reached_counts_as_farthest(name):
    shadow, target = planted("shadow", shift=1.0), planted("target", shift=1.0)
    target["all"][0, 1], shadow["all"][0, 1] = torch.inf, torch.inf
    target["all"][1], target["all"][0, [0, 2]] = target["all"][0], 0.0
    target["all"][1, [0, 2]] = 0.0
    target["all"][1, 1] = shadow["all"][1:, 1].max()
    found = run(name, shadow, target, generator=stream(0, name))["all"]
    assert bool(found.isfinite().all())
    assert float(found[0]) == pytest.approx(float(found[1]), abs=1e-4)  # float32 rounds larger batches otherwise
