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


class Folder(click.Path):
    """A folder named on the command line."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("a folder must have a name.", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except ValueError:  # letters that no file system has
            self.fail("a folder must have a name that can be written.", param, ctx)


class Whole(click.IntRange):
    """A whole number in a range, written in at most 20 ASCII digits; `int` takes those of every script."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]{1,20}", value):
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        return super().convert(int(value), param, ctx)

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


FOLDER, _ROOT = Folder(), Folder(exists=True)


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
    click.option("--seed", type=Whole(), help="Seed of every random stream.  [default: 0]"),
    click.option("--device", help="auto, cpu, cuda or cuda:N.  [default: auto]"),
    click.option("-p", "--parameter", "pairs", multiple=True, metavar="NAME=VALUE", help="The same, as a pair."),
)
elsewhere = _options(
    click.option("--workers", type=Whole(1, _MOST_JOBS), help="Execute in so many processes of dask, on this machine."),
    click.option(
        "--cluster",
        envvar="LEAKAGE_CLUSTER",
        metavar="ADDRESS",
        help="Execute on the workers of this scheduler of dask.",
    ),
)
machines = _options(
    click.option("--jobs", type=Whole(1, _MOST_JOBS), help="Chapters at a time.  [default: one for each core, or GPU]"),
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
