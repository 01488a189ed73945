"""Trainers and attacks on a GPU and on the CPU beside it: `python benchmarks/devices.py [--record]`.

Each work is timed on every device that is here: seconds by the clock, the lesser of two calls after the first. With
`--record`, on a machine with a GPU, they go to the record that the page *Performance* shows. From it come the sizes
from which chapters use a GPU (`reproduced.runtime.GPU_FROM`).
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gradient_inversion
from leakage import draws, lira, recover, rmia
from leakage.models import initialisation, mlp
from leakage.trainers import dp_sgd, ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, ModuleEnsemble, Recipe
from reproduced.papers.blessing import logistic_regression
from reproduced.papers.kkt_margin import margin_flow, two_layer
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.run.chapter_cache import machine_provenance
from reproduced.runtime import move, stream
from timing import ROOT, round_digits, wants_record, write_record

PATH = "book/records/devices.json"


@dataclass(frozen=True)
class Work:
    """What is timed: `kind` and `size` are those of `runtime.GPU_FROM`, for work that chapters move to a GPU.

    `prepare` gives the arguments of `call`, on the CPU; `call` computes on their device.
    """

    what: str
    prepare: Callable[[], tuple[Any, ...]]
    call: Callable[..., object]
    kind: str | None = None
    size: float = 0.0


def normal(*shape: int, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, the same at each call."""
    return draws.gaussian(shape, generator=stream(0, f"devices/{name}"), dtype=dtype)


def classification(models: int, rows: int, *shape: int) -> tuple[Examples, Tensor]:
    """Points with one of ten classes, and the half of them that each network is trained on."""
    generator = stream(0, "devices/labels")
    labels = draws.integers(10, (rows,), generator=generator)
    order = draws.uniform((models, rows), generator=generator).argsort(-1)
    return Examples((normal(rows, *shape, name="points"),), labels), order[:, : rows // 2]


def works(scale: int = 1) -> Iterator[Work]:
    """All works, at the sizes of the record divided by `scale`."""
    draw = stream(0, "devices/networks")
    models, rows, widths = 64 // scale, 20_000 // scale, (128, 256, 10)
    weights = 128 * 256 + 256 * 10
    stacked = MlpEnsemble.from_mlp(mlp.initial((models,), widths, generator=draw, dtype=torch.float32))
    yield Work(
        f"{models} networks 128-256-10, {rows:,} rows, 3 epochs",
        lambda: (stacked, *classification(models, rows, 128)),
        lambda networks, examples, halves: ensembles.train(
            networks, examples, halves, Recipe(3, 100), generator=stream(0, "devices/shuffles")
        ),
        "networks",
        models * 100 * weights,
    )
    convolutional, images = -(-16 // scale), 5000 // scale
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(32 * 14 * 14, 10))
    stack = initialisation.initial(module, convolutional, generator=draw)
    yield Work(
        f"{convolutional} convolutional networks, {images:,} images of 32 × 32",
        lambda: (stack, *classification(convolutional, images, 3, 32, 32)),
        lambda networks, examples, halves: ensembles.train(
            ModuleEnsemble(module.to("meta"), networks),
            examples,
            halves,
            Recipe(1, 100),
            generator=stream(0, "devices/shuffles"),
        ),
        "networks",
        convolutional * 100 * (30 * 30 * 32 * 27 + 14 * 14 * 32 * 288 + 32 * 14 * 14 * 10),
    )
    for networks, points, dimension, width, steps, dtype in (
        (1, 20, 1000, 10_000, 1000, torch.float32),
        (100, 20, 1000, 1000, 1000, torch.float64),
        (1, 1000, 784, 4000, 300, torch.float32),
    ):
        networks, points, steps = -(-networks // scale), max(4, points // scale), steps // scale
        yield Work(
            f"margin flow, {networks} × {width:,} neurons, {points:,} points in {dimension} dimensions, "
            f"{steps:,} steps, {str(dtype).removeprefix('torch.')}",
            lambda networks=networks, points=points, dimension=dimension, width=width, dtype=dtype: (
                two_layer.initial((networks,), width, dimension, generator=stream(0, "flow")).to(dtype),
                normal(networks, points, dimension, name="flow", dtype=dtype),
                normal(networks, points, name="signs", dtype=dtype).sign(),
            ),
            lambda start, inputs, signs, steps=steps: margin_flow.train(start, inputs, signs, Descent(steps)),
            "margin flow",
            networks * points * width * min(points, dimension),
        )
    private, settings, steps = -(-8 // scale), -(-8 // scale), 300 // scale
    yield Work(
        f"DP-SGD, {private} networks 128-256-10 at {settings} settings, {steps} steps",
        lambda: (
            dp_sgd.repeat_for_settings(
                mlp.initial((private,), widths, generator=stream(0, "private"), dtype=torch.float32), settings
            ),
            *classification(private, rows, 128),
            torch.linspace(0.5, 4, settings),
            torch.full((settings,), 0.1),
        ),
        lambda networks, examples, halves, noise, rate: dp_sgd.train(
            networks,
            examples,
            halves,
            dp_sgd.PrivateRecipe(steps, 200.0 / scale),
            noise=noise,
            learning_rate=rate,
            generator=stream(0, "devices/noise"),
        ),
        "private networks",
        private * settings * 200 * weights,
    )
    fitted = 2000 // scale
    yield Work(
        f"logistic regression and all points left out, {fitted:,} points, float64",
        lambda: (
            normal(fitted, 2 * fitted, name="rows", dtype=torch.float64),
            (normal(fitted, name="classes", dtype=torch.float64) > 0).double(),
        ),
        lambda points, classes: logistic_regression.leave_one_out(
            logistic_regression.fit(points @ points.mT / fitted, classes, ridge=0.1)
        ),
        "logistic regression",
        fitted**3,
    )
    neurons, dimension = 8000 // scale, 784 // scale
    yield Work(
        f"gradient inversion, 4 inputs, {dimension} dimensions, {neurons:,} neurons",
        lambda: gradient_inversion.problem("images 0", 4, dimension, neurons, activation="tanh", bias=0.0)[1:],
        lambda seen: recover(seen, batch=4, norm=1.0, generator=stream(0, "recover")),
        "gradient inversion",
        neurons * dimension,
    )
    audited = 10**6 // scale**2
    for name, attack in (("LiRA", lira), ("RMIA", rmia)):
        yield Work(
            f"{name}, 64 models, {audited:,} rows",
            lambda: (normal(64, audited, name="losses").exp(), normal(64, audited, name="members") > 0),
            lambda losses, member, attack=attack: attack(losses, member, target=0),
        )


def seconds(work: Work, device: str) -> float:
    """The lesser of two calls after the first, by the clock, with three significant digits."""
    given, times = move(work.prepare(), device), []
    for _ in range(3):
        start = time.perf_counter()
        work.call(*given)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return round_digits(min(times[1:]))


def main(arguments: Sequence[str] | None = None, *, scale: int = 1, root: Path = ROOT) -> int:
    """Print the table, and with `--record` write it; the exit status is 1 if that needs a GPU and there is none."""
    recorded, rows = wants_record(arguments, "Time trainers and attacks on this machine's devices.", PATH), []
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for work in works(scale):
        times = {device: seconds(work, device) for device in devices}
        rows.append({"what": work.what, "kind": work.kind, "size": round_digits(work.size)} | times)
        print(f"{work.what}: {times}", flush=True)
    if not recorded:
        return 0
    if "cuda" not in devices:
        print("Nothing is recorded: a record compares a GPU with the CPU beside it, and there is no GPU.")
        return 1
    content = {"gpu": machine_provenance("cuda")["device_name"], "threads": os.cpu_count(), "rows": rows}
    write_record(PATH, "Devices", "seconds by the clock, the lesser of two calls", content, root=root)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
