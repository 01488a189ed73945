"""The command line `leakage`: build the book, keep a record, fetch data, look at what there is.

Each command checks its arguments, calls one function and turns the result into lines and an exit status: 0 if all is
well, 1 if something failed, 2 if the request cannot be carried out (one line on stderr, nothing changed), 130 if it was
interrupted. Heavy modules are imported inside the commands, so that help is instant.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from leakage.pipeline.worker import spare_the_iri_grammar

_REFUSED, _INTERRUPTED = 2, 130

_FOLDER = click.Path(file_okay=False, path_type=Path)


def _options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Several options as one decorator, in the order given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_where = _options(
    click.option("--root", type=_FOLDER, help="The repository; by default the one around the current folder."),
    click.option("--build-dir", type=_FOLDER, help="Where everything generated goes.  [default: ROOT/_build]"),
)
_parameters = _options(
    click.option("--profile", help="smoke (seconds, nothing judged), ci (minutes) or paper (one GPU).  [default: ci]"),
    click.option("--seed", type=int, help="Seed of every random stream.  [default: 0]"),
    click.option("--device", help="auto, cpu, cuda or cuda:N.  [default: auto]"),
    click.option("-p", "--parameter", "pairs", multiple=True, metavar="NAME=VALUE", help="The same, as a pair."),
)


@click.group()
@click.version_option(package_name="leakage")
def commands() -> None:
    """Privacy Leakage, Reproduced: run the attacks, judge the claims, build the book."""


@commands.command()
@click.argument("chapters", nargs=-1)
@_parameters
@click.option("--jobs", type=click.IntRange(min=1), help="Chapters at a time.  [default: one for each core, or GPU]")
@click.option("--timeout", type=click.IntRange(min=1), help="Most seconds for a cell.  [default: by profile]")
@click.option("--no-render", is_flag=True, help="Execute and judge, but do not make the site.")
@_where
def build(
    chapters: tuple[str, ...],
    profile: str | None,
    seed: int | None,
    device: str | None,
    pairs: tuple[str, ...],
    jobs: int | None,
    timeout: int | None,
    no_render: bool,
    root: Path | None,
    build_dir: Path | None,
) -> int:
    """Execute CHAPTERS (all by default) where needed, judge their claims and make the site."""
    from leakage.pipeline.book import open_book, parameters
    from leakage.pipeline.build import build as build_book
    from leakage.pipeline.build import verdicts
    from leakage.pipeline.plan import registered_checksum
    from leakage.pipeline.progress import Progress

    book = open_book(root, build_dir)
    book.choose(chapters)
    given = parameters({"profile": profile, "seed": seed, "device": device}, pairs)
    with Progress() as progress:
        report = build_book(
            book,
            chapters,
            given,
            checksum=registered_checksum,
            jobs=jobs,
            cell_seconds=timeout,
            rendered=not no_render,
            progress=progress,
        )
    for fault in report.faults:
        click.echo(fault, err=True)
    if not no_render and (book.site / "index.html").is_file():
        click.echo(f"The book: {book.site / 'index.html'}")
    click.echo(f"Claims: {verdicts(report)}")
    return 1 if report.faults else 0


@commands.command()
@click.argument("chapter")
@_where
def record(chapter: str, root: Path | None, build_dir: Path | None) -> int:
    """Keep the finished full-scale run of CHAPTER in book/records/, to be shown beside every later run."""
    from leakage.pipeline.book import open_book
    from leakage.pipeline.build import keep_record

    click.echo(f"Kept {keep_record(open_book(root, build_dir), chapter)}.")
    return 0


@commands.command()
@click.argument("names", nargs=-1)
@click.option("--needed", is_flag=True, help="The sets that claims need; a damaged file is named and left as it is.")
@click.option("--if-possible", is_flag=True, help="For a build: do not wait for a network, never fail, and be brief.")
@click.option("--root", type=_FOLDER, help="The repository whose claims count; by default the one around this folder.")
def data(names: tuple[str, ...], needed: bool, if_possible: bool, root: Path | None) -> int:
    """Fetch the data sets NAMES; without a name, list what the book knows and what is here."""
    from leakage.data import registry
    from leakage.pipeline import datasets

    for name in names:
        if name not in registry.DATASETS:
            raise click.UsageError(f"{name!r} is no data set; known are: {', '.join(registry.DATASETS)}.")
    if (names and needed) or (if_possible and not needed):
        raise click.UsageError("--needed goes without names, and --if-possible goes with it.")
    if needed:
        lines = datasets.fetch_needed(root, hurried=if_possible)
    else:
        lines = datasets.fetch_named(names) if names else datasets.listing()
    faults = 0
    for line in lines:
        click.echo(f"leakage: {_one_line(line.text)}" if line.fault else line.text, err=line.fault)
        faults += line.fault
    return 1 if faults and (names or needed) and not if_possible else 0


@commands.command()
@_parameters
@_where
def status(
    profile: str | None,
    seed: int | None,
    device: str | None,
    pairs: tuple[str, ...],
    root: Path | None,
    build_dir: Path | None,
) -> int:
    """Say for each chapter whether its results on disk are up to date, and what it found."""
    from leakage.pipeline.book import open_book, parameters
    from leakage.pipeline.build import state_lines
    from leakage.pipeline.plan import registered_checksum

    given = parameters({"profile": profile, "seed": seed, "device": device}, pairs)
    for line in state_lines(open_book(root, build_dir), given, checksum=registered_checksum):
        click.echo(line)
    return 0


@commands.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@_where
def serve(port: int, root: Path | None, build_dir: Path | None) -> int:
    """Show the site in a browser, from this machine only."""
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    from leakage.pipeline.book import Refusal, open_book

    site = open_book(root, build_dir).site
    if not (site / "index.html").is_file():
        raise Refusal(f"there is no site in {site}; run `leakage build` first.")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(site)))
    except OSError as error:
        raise Refusal(f"port {port} cannot be used ({error.strerror}); choose another with --port.") from error
    with server, suppress(KeyboardInterrupt):
        click.echo(f"http://127.0.0.1:{server.server_port}/ (stop with Ctrl-C)")
        server.serve_forever()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    spare_the_iri_grammar()
    try:
        return commands.main(arguments, prog_name="leakage", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return _REFUSED
    except (click.Abort, KeyboardInterrupt):
        click.echo("leakage: interrupted; what was finished is kept, and the next build goes on from there.", err=True)
        return _INTERRUPTED
    except click.ClickException as error:
        click.echo(f"leakage: {_one_line(error.format_message())}", err=True)
        return error.exit_code


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
