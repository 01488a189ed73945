"""Our audit beside SACRO-ML, ART and jax_privacy, on the same losses: `python benchmarks/peers.py [--record]`.

The others are installed into `_build/peers`, as `peers.txt` pins them, some 2 GB; where that fails, a line says so, and
nothing is compared or written. Their attacks run in `peer_attacks`, in a process of that environment, on numbers that
are saved here. What both find and their CPU seconds on one thread go to the record that the page *Performance* shows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from leakage.data import datasets, tabular
from leakage.data.membership_splits import complementary_pairs
from leakage.membership.lira import lira
from leakage.membership.row_features import quantile_regression
from leakage.membership.trained_models import TrainedModels
from leakage.metrics import gaussian_mechanism
from leakage.metrics.epsilon_bounds import one_run
from leakage.metrics.scores import rates
from reproduced.runtime import stream
from timing import ROOT, one_thread, round_digits, wants_record, write_record

HERE = Path(__file__).parent
RECORD = "book/records/peers.json"
DELTA, NOISES = 1e-5, (1.0, 0.5)  # standard deviations of the canaries' Gaussian noise
RUNS, CANARIES, GUESSES = 10, 1000, [(100, 100)]
FPR = 0.01


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    data: str = "location" if datasets.is_available("location") else "digits"  # the set, by its name
    rows: int = 2000  # the most of it that are taken
    models: int = 16  # logistic regressions on halves
    targets: int = 2  # that SACRO-ML's LiRA, which is slow, attacks
    runs: int = RUNS  # of noisy coins


@dataclass(frozen=True)
class Comparison:
    """One comparison, as the record has it: what both find, on the same numbers, and their CPU seconds."""

    id: str
    what: str
    ours: str
    theirs: str
    ours_found: str
    theirs_found: str
    ours_seconds: float
    theirs_seconds: float


def install(root: Path) -> Path | None:
    """The interpreter of an environment that has the others; None, and a line, where they cannot be had."""
    python = root / "_build" / "peers" / "bin" / "python"
    wanted = (HERE / "peers.txt").read_text("utf-8")
    mark = python.parents[1] / "installed.txt"
    if mark.is_file() and mark.read_text("utf-8") == wanted:
        return python
    index = ["--extra-index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(python.parents[1])],
        [str(python), "-m", "pip", "install", "-q", *index, "-r", str(HERE / "peers.txt")],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"Without other tools: {(done.stderr.strip() or 'no reason was given').splitlines()[-1]}")
            return None
    mark.write_text(wanted, "utf-8")
    return python


def compare(python: Path, sizes: Sizes) -> list[Comparison]:
    pool = tabular.load_digits() if sizes.data == "digits" else tabular.load(sizes.data)
    count = min(sizes.rows, len(pool)) // 2 * 2
    x, labels = pool.features[:count].double().numpy(), pool.labels[:count].numpy()
    halves = complementary_pairs(count, sizes.models, generator=stream(0, "peers"))
    fits = [LogisticRegression(max_iter=300).fit(x[rows], labels[rows]) for rows in halves.member.numpy()]
    posteriors = np.stack([one.predict_proba(x) for one in fits])
    true = np.take_along_axis(posteriors, labels[None, :, None], 2)[..., 0]
    losses = torch.from_numpy(-np.log(true.clip(np.finfo(float).tiny)))
    known = TrainedModels.from_losses(losses, halves.member, halves.partner)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "known.npz"

        def theirs(name: str) -> dict[str, Any]:
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            words = [str(python), str(HERE / "peer_attacks.py"), name, str(file)]
            done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | threads)
            return json.loads(done.stdout.splitlines()[-1])

        member, partner = halves.member.numpy(), halves.partner.numpy()
        np.savez(file, x=x, labels=labels, posteriors=posteriors, targets=sizes.targets, member=member, partner=partner)
        found = _attacks(known, np.column_stack([x, labels]), sizes.targets, theirs)
        for noise in NOISES:
            noisy, coins = _noisy_coins(noise, sizes.runs)
            np.savez(file, delta=DELTA, noisy=noisy.numpy(), coins=coins.numpy())
            found += _bounds(noise, noisy, coins, theirs)
    return found


def _attacks(
    known: TrainedModels, features: np.ndarray, targets: int, theirs: Callable[[str], dict[str, Any]]
) -> list[Comparison]:
    member, table = known.member, torch.from_numpy(features)

    def likelihood_ratios() -> Tensor:
        return lira(known.losses, member, known.partner, variance="own")[:targets]

    def quantiles() -> Tensor:
        return quantile_regression(known.margins[:1], member[:1], table)

    of_lira = f"LiRA with own variances, {targets} targets with the same shadow models"
    of_one = "One target without shadow models"
    of_half = f"{of_one}, every second row"
    rows = []
    for id, what, method, attack, name, other_method in (
        ("lira", of_lira, "LiRA, own variance", likelihood_ratios, "sacro_lira", "SACRO-ML, LiRA, online-carlini"),
        ("quantiles", of_one, "quantile regression", quantiles, "sacro_quantiles", "SACRO-ML, QMIA"),
        ("black box", of_half, "quantile regression", quantiles, "art_black_box", "ART, black box, forest"),
    ):
        scores, seconds = _timed(attack)
        other = theirs(name)
        judged = other.get("rows", slice(None))
        found = [scores[:, judged], torch.tensor(other["scores"]).double()]
        ours, others = (_rates(one, member[: len(scores), judged]) for one in found)
        times = round_digits(seconds), round_digits(other["seconds"])
        rows.append(Comparison(id, what, f"leakage, {method}", other_method, ours, others, *times))
    return rows


def _bounds(noise: float, noisy: Tensor, coins: Tensor, theirs: Callable) -> list[Comparison]:
    truth, rows = gaussian_mechanism.epsilon(noise, DELTA), []
    for name, gaussian, method, other_method in (
        ("jax_one_run", False, "any mechanism", "one run"),
        ("jax_f_dp", True, "Gaussian", "f-DP"),
    ):
        ours = partial(one_run, guesses=GUESSES, delta=DELTA, gaussian=gaussian)
        bounds, seconds = _timed(lambda ours=ours: [ours(*run).epsilon for run in zip(noisy, coins, strict=True)])
        other = theirs(name)
        rows.append(
            Comparison(
                f"{name} {noise}",
                f"ε = {truth:.3g} from below, {method}, {CANARIES:,} canaries, mean of {len(noisy)} runs",
                "leakage, 100 and 100 guesses",
                f"jax_privacy, {other_method}, all thresholds",
                *(f"ε ≥ {mean(bounds):.2f}", f"ε ≥ {mean(other['bounds']):.2f}"),
                *(round_digits(seconds), round_digits(other["seconds"])),
            )
        )
    return rows


def _noisy_coins(noise: float, runs: int) -> tuple[Tensor, Tensor]:
    draws = stream(0, f"noisy coins/{noise!r}")
    coins = torch.rand(runs, CANARIES, generator=draws) < 0.5
    return coins + noise * torch.randn(runs, CANARIES, generator=draws, dtype=torch.float64), coins


def _rates(scores: Tensor, member: Tensor) -> str:
    found = rates(scores, member=member, fprs=[FPR])
    return f"AUC {float(found['auc'].mean()):.3f}, TPR at 1 % FPR {float(found[f'tpr_at_{FPR}'].mean()):.3f}"


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def main(words: Sequence[str] | None = None, *, sizes: Sizes | None = None, root: Path = ROOT) -> int:
    """Compare, print, and with `--record` write the record under `root`."""
    recorded = wants_record(words, "Compare the audit with other tools.", RECORD)
    python = install(root)
    if python is None:
        return 0
    with one_thread():
        found = compare(python, sizes or Sizes())
    for one in found:
        print(f"{one.what}\n    {one.ours}: {one.ours_found}, {one.ours_seconds:.3g} s")
        print(f"    {one.theirs}: {one.theirs_found}, {one.theirs_seconds:.3g} s")
    if recorded:
        content = {"rows": [asdict(one) for one in found]}
        write_record(RECORD, "Beside other tools", "CPU seconds on one thread, one run", content, root=root)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
