"""What several commands are asked alike: which book, with which parameters, executed where.

Importing this imports nothing heavy, so that help is instant.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_MOST_JOBS = 1024
_ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/]+:[0-9]{1,5}")


FOLDER = click.Path(file_okay=False, path_type=Path)
_ROOT = click.Path(exists=True, file_okay=False, path_type=Path)


def _options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Several options as one decorator, in the order given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


where = _options(
    click.option("--root", type=_ROOT, help="The repository; by default the one around the current folder."),
    click.option("--build-dir", type=FOLDER, help="Where everything generated goes.  [default: ROOT/_build]"),
)
parameters = _options(
    click.option("--profile", help="smoke (seconds, nothing judged), ci (minutes) or paper (one GPU).  [default: ci]"),
    click.option("--seed", type=int, help="Seed of every random stream.  [default: 0]"),
    click.option("--device", help="auto, cpu, cuda or cuda:N.  [default: auto]"),
    click.option("-p", "--parameter", "pairs", multiple=True, metavar="NAME=VALUE", help="The same, as a pair."),
)
elsewhere = _options(
    click.option(
        "--workers", type=click.IntRange(1, _MOST_JOBS), help="Execute in so many processes of dask, on this machine."
    ),
    click.option(
        "--cluster",
        envvar="LEAKAGE_CLUSTER",
        metavar="ADDRESS",
        help="Execute on the workers of this scheduler of dask.",
    ),
)
machines = _options(
    click.option(
        "--jobs", type=click.IntRange(1, _MOST_JOBS), help="Chapters at a time.  [default: one for each core, or GPU]"
    ),
    elsewhere,
)


def check_place(*, jobs: int | None = None, workers: int | None, cluster: str | None) -> bool:
    """Whether another place than this process is asked for.

    Raises:
        click.UsageError: if there is more than one, or the address of a scheduler is none.
    """
    if sum(option is not None for option in (jobs, workers, cluster)) > 1:
        raise click.UsageError("--jobs, --workers and --cluster (or LEAKAGE_CLUSTER) exclude each other.")
    if cluster is not None and not _ADDRESS.fullmatch(cluster):
        from leakage import arguments

        shown = arguments.shown(cluster)
        raise click.UsageError(f"a scheduler's address is tcp://HOST:PORT or tls://HOST:PORT; got {shown}.")
    return workers is not None or cluster is not None
