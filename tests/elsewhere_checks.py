"""What ordinary tests do not show of the second device, or are too slow to show: run beside them (`second_device`)."""

import pytest
import torch
from torch import nn

from leakage.attacks.gradient_inversion import recover
from leakage.draws import gaussian
from leakage.geometry.subdivision import subdivide
from leakage.models import initialisation, mlp
from leakage.precision import DTYPE
from leakage.theory.logistic import limit
from leakage.theory.logistic.limit import Setting, solve
from leakage.trainers import ensembles, margin_flow
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.ensembles import Examples, ModuleEnsemble
from leakage.trainers.federated import DeepStack
from leakage.trainers.margin_flow import Descent
from reproduced.runtime import stream
from reproduced.studies.blessing import (
    logistic_models,
    private_training,
    support_vectors,
    theory_checks,
    tradeoff,
)
from reproduced.studies.gradient_inversion import games, step_errors
from reproduced.studies.polytopes import boundary_attacks, theorems, windows
from second_device import held

ONE = torch.ones(1, dtype=DTYPE)
# Mistakes that must be noticed, or a test that passes elsewhere means nothing.
PLANTED = {
    "a constant of the CPU": lambda x: x + torch.ones(2, dtype=DTYPE),
    "a result on the CPU": lambda x: x.cpu(),
    "an index of the CPU": lambda x: torch.where(torch.tensor([True]), x, 0.0),
}
DRAWS, SETTING = stream(0, "elsewhere"), Setting.bilevel(penalty=ONE, delta=0.5, phi=4.0)
POINTS, NETWORK = gaussian((6, 2), generator=DRAWS), mlp.initial((), (2, 5, 4, 2), generator=DRAWS)
ENSEMBLE = logistic_models.Bilevel(n=8, d=3, p=12, sigma_beta=3.0)
FEW_NEURONS = games.draw_round(games.Game(4, 8, batch=2, activation="gelu", inputs="sphere"), seed=0).observation

PRIVATE = dict(features=gaussian((30, 6), generator=DRAWS), labels=torch.arange(30) % 2, pool=20, seed=0, models=4)
PRIVATE |= dict(noise=(1.0, 2.0), learning_rates=(0.1,), recipe=PrivateRecipe(3, 5.0))
FORM = nn.Linear(2, 2).to("meta")
LINEAR = initialisation.initial(FORM, 2, generator=DRAWS, dtype=DTYPE)


def outputs():
    points = logistic_models.draw_points(ENSEMBLE, 2, generator=DRAWS)
    found = logistic_models.simulate_outputs(ENSEMBLE, points, penalty=1.0, trials=4, generator=DRAWS, refit=True)
    solution = solve(SETTING)
    law = logistic_models.point_laws(solution.law, logistic_models.influence(ENSEMBLE, points, solution, penalty=1.0))
    return logistic_models.law_distances(found, points, law).refits[0].low


def margin():
    module = nn.Sequential(nn.Linear(9, 1, bias=False, dtype=DTYPE), nn.Flatten(0))
    points, labels = gaussian((2, 9), generator=DRAWS), torch.tensor([1.0, -1], dtype=DTYPE)
    start = {"0.weight": gaussian((1, 9), generator=DRAWS)}
    return margin_flow.train_module(module, start, points, labels, Descent(2, learning_rate=0.1))


def classifiers(start, points, generator, *, batched):
    examples, recipe = Examples((points,), (points[:, 0] > 0).long()), ensembles.Recipe(1, 2, optimiser="sgd")
    networks = ModuleEnsemble(FORM, start, batched=batched)
    half = torch.arange(4, device=points.device).expand(2, 4)
    return ensembles.train(networks, examples, half, recipe, generator=generator).compute_losses(examples)


def stack(weights):
    return DeepStack(weights, activation="sigmoid", bias=1.0, depth=3, kind="paired")


CALLS = {
    "a reading": lambda: tradeoff.read_at_error(
        tradeoff.trade_off(3 * ONE, strongest=1, weakest=0.1, per_decade=1), 0.2
    ),
    "laws of outputs": outputs,
    "an iteration": lambda: solve(SETTING, method="fixed point", iterations=2, strict=False),
    "the least ridge": lambda: limit.gamma_lower_bound(SETTING),
    "a deep client": lambda: held(stack)(POINTS),
    "a one-sided tensor": lambda: step_errors.one_sided_tensor(FEW_NEURONS),
    "few neurons": lambda: recover.recover(FEW_NEURONS, batch=2, generator=DRAWS, tries=2),
    "walks": lambda: [
        boundary_attacks.walk_to_boundary(NETWORK, POINTS, boundary_attacks.WalkSettings(variant=variant, iterations=3))
        for variant in boundary_attacks.VARIANTS
    ],
    "a private audit": lambda: private_training.audit_private_training((5, 0), **PRIVATE),
    "machines": lambda: support_vectors.measure_privacy(
        "weak features", widths=[4, 12], rows=8, trials=4, fresh=2, generator=DRAWS, bin_width=0.5
    ),
    "an integral": lambda: theory_checks.integrated_advantage(solve(SETTING).law, teacher=ONE, label=ONE, nodes=40),
    "refinement": lambda: theorems.refinement(NETWORK, subdivide(NETWORK, windows.unit_square())),
    "a margin": margin,
    **{
        f"classifiers, {batched}": lambda batched=batched: held(classifiers)(LINEAR, POINTS, DRAWS, batched=batched)
        for batched in (False, True)
    },
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_gpu_would_refuse_is_noticed(name):
    with pytest.raises(RuntimeError, match="CPU"):
        held(PLANTED[name])(ONE)


@pytest.mark.parametrize("name", CALLS)
def test_what_no_quick_test_calls_is_computed_elsewhere(name):
    assert CALLS[name]() is not None
