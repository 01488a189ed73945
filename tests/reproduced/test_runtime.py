"""Parameters are checked before anything runs; streams depend on seed and name alone; sizes cannot be misspelt."""

import dataclasses

import pytest
import torch

from checking import refusals, refused
from leakage.precision import DTYPE
from reproduced import runtime
from reproduced.papers.kkt_margin import two_layer
from reproduced.runtime import Run, begin, check_profile, check_seed, move, pick_device, settings, stream


def draws(generator, count=8):
    return torch.randn(count, generator=generator, dtype=DTYPE)


def test_a_stream_is_its_seed_and_name_whatever_was_drawn_before():
    alone = draws(stream(0, "noise"))
    other = stream(0, "other")
    draws(other, 1000)
    with torch.random.fork_rng():
        torch.manual_seed(123)
        draws(torch.default_generator, 1000)
        torch.testing.assert_close(draws(stream(0, "noise")), alone)


def test_a_stream_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    draws(stream(0, "noise"), 1000)
    torch.testing.assert_close(torch.random.get_rng_state(), before)


def test_the_state_of_a_stream_never_changes_between_versions():
    """The first eight bytes, lowest first, of the SHA-256 of "0/noise": records made with it stay reproducible."""
    assert stream(0, "noise").initial_seed() == 0x1F58D0B276F1538E


@pytest.mark.parametrize(("seed", "name"), [(1, "noise"), (0, "noises"), (0, "Noise"), (0, ""), (0, "noise/0")])
def test_another_seed_or_another_name_is_another_stream(seed, name):
    assert not bool((draws(stream(seed, name)) == draws(stream(0, "noise"))).any())


def test_a_run_hands_out_the_streams_of_its_seed():
    run = begin("smoke", 7, "cpu")
    torch.testing.assert_close(draws(run.stream("x")), draws(stream(7, "x")))
    assert run == Run("smoke", 7, torch.device("cpu"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 8


PROFILES = "`profile` must be one of smoke, ci, paper; got"
SEEDS = "`seed` must be a whole number from 0 to 4294967295; got"
test_a_profile_is_one_of_three_names_and_a_seed_a_whole_number_of_32_bits = refusals(
    (check_profile, "CI", PROFILES),
    (check_profile, None, PROFILES),
    (check_seed, -1, SEEDS),
    (check_seed, 2**32, SEEDS),
    (check_seed, 0.0, SEEDS),
    (check_seed, True, SEEDS),
    by=lambda check, value: check(value),
)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_the_ends_of_the_range_are_seeds(seed):
    assert check_seed(seed) == seed


@pytest.mark.parametrize(("count", "device"), [(0, "cuda"), (1, "cuda:1"), (8, "cuda:256"), (8, "gpu"), (8, None)])
def test_a_device_is_one_that_the_machine_has(count, device, monkeypatch):
    """`torch.device` keeps a number in eight bits: there, cuda:256 is cuda:0."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    refused(lambda: pick_device(device), "`device` must be one of auto, cpu")


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch):
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert pick_device("auto") == torch.device(device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    assert pick_device("cpu") == torch.device("cpu")


def test_only_work_that_gains_goes_to_a_gpu_by_itself():
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    for work, least in runtime.GPU_FROM.items():
        chosen, asked, without = Run("ci", 0, gpu, automatic=True), Run("ci", 0, gpu), Run("ci", 0, cpu)
        assert [chosen.device_for(work, size) for size in (0.9 * least, least)] == [cpu, gpu]
        assert {asked.device_for(work, 1.0), asked.device_for(work, least)} == {gpu}
        assert without.device_for(work, 10 * least) == cpu


def test_a_stream_draws_on_the_cpu_whatever_the_device():
    run = Run("ci", 3, torch.device("cuda", 0))
    assert run.stream("draws").device == torch.device("cpu")
    torch.testing.assert_close(run.stream("draws").get_state(), stream(3, "draws").get_state())


def test_every_tensor_of_a_value_moves():
    part = two_layer.initial((2,), 3, 4, generator=stream(0, "networks"))
    value = {"record": part, "pair": (torch.ones(2), [torch.zeros(1), "text"]), "none": None}
    moved = move(value, "meta")
    tensors = [*vars(moved["record"]).values(), moved["pair"][0], moved["pair"][1][0]]
    assert all(one.is_meta for one in tensors)
    assert (type(moved["record"]), moved["pair"][1][1], moved["none"]) == (type(part), "text", None)


def sizes(**changes):
    table = {name: dict(trials=trials, share=0.1) for trials, name in enumerate(runtime.PROFILES, start=1)}
    return table | changes


def test_settings_are_the_frozen_column_of_the_profile():
    for trials, profile in enumerate(runtime.PROFILES, start=1):
        chosen = settings(profile, **sizes())
        assert (chosen.trials, chosen.share) == (trials, 0.1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            chosen.trials = 5
    with pytest.raises(AttributeError):
        _ = settings("ci", **sizes()).trails


@pytest.mark.parametrize("profile", runtime.PROFILES)
@pytest.mark.parametrize(
    ("column", "culprit"),
    [
        (dict(trails=1, share=0.1), "trails, trials"),
        (dict(trials=1), "share"),
        (dict(trials=1.0, share=0.1), "trials"),
        (dict(trials=1, share=0.1, extra=2), "extra"),
    ],
)
def test_a_size_misspelt_in_one_profile_is_found_in_all(profile, column, culprit):
    with pytest.raises(ValueError, match=f"differ in: {culprit}\\."):
        settings(profile, **sizes(paper=column) if profile != "paper" else sizes(ci=column))
