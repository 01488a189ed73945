"""Results of the library live where the inputs live: tests of every part run again on a simulated second device.

`second_device` says what it refuses; `test_smoke` runs the chapters on it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from checking import HANGS
from reproduced.runtime import GPU_FROM

# What `second_device` is made of came after the oldest PyTorch that the library takes; the locked one has it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        torch.torch_version.TorchVersion(torch.__version__) < (2, 13)
        and not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this PyTorch takes no device that is written in Python",
    ),
]
HERE = Path(__file__).parent
BOOK = HERE.parent / "book"
# Quick tests that together call what the chapters call: of <folder>/test_<file>.py all of test_<name>, or every test.
QUICK = {
    "leakage/inversion/tensor_decomposition": ("one_term_is_found_by_every_method[joint]",),
    "reproduced/papers/gradient_inversion/deep_networks": (
        "the_top_of_a_stack_is_a_two_layer_client_of_the_features[mse_loss-2-paired-linear]",
    ),
    "reproduced/papers/gradient_inversion/server_weights": ("every_kind_has_the_moments_of_a_standard_normal",),
    "leakage/inversion/moments": ("a_turn_of_the_space_turns_the_moments",),
    "leakage/inversion/recover": (
        "directions_point_along_the_inputs",
        "few_neurons_will_do_where_the_length_is_known",
        "labels_tell_a_sigmoid_from_its_mirror_image",
        "the_output_layer_alone_suffices_with_many_neurons",
    ),
    "leakage/inversion/nonlinear_least_squares": ("signs_are_found_by_one_linear_fit[polynomial]",),
    "leakage/inversion/relu_decoding": ("weights_of_another_law_will_do",),
    "leakage/inversion/span": ("scale_and_order_of_the_neurons_do_not_matter",),
    "leakage/inversion/tensor_attack": (
        "every_contraction_finds_a_planted_batch[gelu-mean]",
        "every_contraction_finds_a_planted_batch[tanh-random]",
    ),
    "reproduced/papers/kkt_margin/line_reconstruction": (
        "candidates_close_together_are_one",
        "one_neuron_gives_its_point_away_in_any_dimension",
        "the_scale_of_the_network_does_not_matter",
        "smeared_weights_give_away_what_the_exact_ones_do[random]",
    ),
    "leakage/membership/attack_models": ("what_was_not_reached_counts_as_farthest",),
    "leakage/membership/boundary_distance": (),
    "leakage/membership/calibration": (),
    "leakage/membership/hyperedges": ("rays_lead_away_from_the_point",),
    "leakage/membership/lira": (),
    "leakage/membership/loss_threshold": (),
    "leakage/membership/margin": (),
    "leakage/membership/posterior": (),
    "leakage/membership/shadow_models": ("one_target_is_its_row_of_all_and_is_blind_to_its_own_membership",),
    "leakage/membership/rmia": (),
    "leakage/membership/row_features": (
        "members_that_differ_are_told_apart",
        "positive_scores_are_above_the_median_of_outsiders",
    ),
    "batches": (),
    "reproduced/papers/polytopes/decision_boundary": (),
    "leakage/membership/polytopes": (
        "a_neuron_without_open_path_is_never_reached",
        "one_neuron_is_as_far_as_its_line",
        "within_the_radius_the_pattern_stays_and_the_closest_neuron_flips_behind_it",
    ),
    "leakage/membership/rays": (),
    "reproduced/papers/polytopes/subdivision": (),
    "leakage/metrics/estimates": (),
    "leakage/metrics/roc": (),
    "leakage/metrics/scores": (),
    "leakage/inversion/activations": ("as_many_derivatives_come_as_were_asked_for",),
    "reproduced/papers/kkt_margin/two_layer": (),
    "leakage/membership/evaluation": ("every_point_has_a_finite_score_under_every_model",),
    "leakage/trainers/ensembles": (
        "an_ensemble_computes_what_separate_networks_compute[sgd with momentum]",
        "a_loss_judged_is_the_cross_entropy_however_small_it_is",
    ),
    "reproduced/papers/blessing/logistic_regression": (),
    "reproduced/papers/min_norm/nested_fits": (),
    "reproduced/papers/blessing/svm": (),
    "leakage/trainers/privacy_accounting": ("without_sampling_delta_is_that_of_one_gaussian[0.0-10.0-1]",),
}
TESTS = ["elsewhere_checks.py"] + [
    f"{folder}{slash}test_{file}.py" + (f"::test_{name}" if name else "")
    for place, names in QUICK.items()
    for folder, slash, file in [place.rpartition("/")]
    for name in names or ("",)
]


@pytest.fixture(scope="module")
def reports():
    """What became of each test on the second device, in a process of its own: the device is registered for good."""
    program = [sys.executable, "-m", "pytest", "-rA", "-p", "second_device", "-p", "no:xdist", "-p", "no:cacheprovider"]
    program += ["--assert", "plain"]  # these tests run with explanations, too, on the first device
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTEST_ADDOPTS": "--tb=short"}
    return subprocess.run(
        [*program, "-m", "not gpu", *TESTS],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS,
    ).stdout


@pytest.mark.parametrize("test", TESTS)
def test_everything_stays_on_the_device_it_is_given(reports, test):
    kinds = [line.split()[0] for line in reports.splitlines() if test in line and line.split()[0].isupper()]
    assert set(kinds) == {"PASSED"}, reports


def test_chapters_use_a_gpu_from_the_sizes_at_which_it_was_measured_to_gain():
    rows = json.loads((BOOK / "records" / "devices.json").read_text("utf-8"))["rows"]
    gains = {row["kind"]: [] for row in rows if row["kind"]}
    for row in rows:
        if row["kind"] and row["cpu"] >= 1.5 * row["cuda"]:
            gains[row["kind"]].append(row["size"])
    assert {kind: min(sizes) for kind, sizes in gains.items()} == pytest.approx(dict(GPU_FROM), rel=0.01)
