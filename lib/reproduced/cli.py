"""The command line `leakage`: build the book, keep a record, fetch data, look at what there is, audit saved losses.

Each command checks its arguments, calls one function and turns the result into lines and an exit status: 0 if all is
well, 1 if something failed (one line for each fault on stderr, what was finished is kept), 2 if the request cannot be
carried out (one line on stderr, nothing changed), 130 if it was interrupted. Heavy modules are imported inside the
commands, so that help is instant.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from reproduced.run import options
from reproduced.run.audit_command import audit
from reproduced.run.options import FOLDER
from reproduced.run.worker import one_line

_FAILED, _REFUSED, _INTERRUPTED = 1, 2, 130
_MOST_SEEDS = 1024
_MOST_SECONDS = 1_000_000  # for a cell: more than eleven days


@click.group()
@click.version_option(package_name="leakage")
def commands() -> None:
    """Privacy Leakage, Reproduced: run the attacks, judge the claims, build the book, audit a model."""


commands.add_command(audit)


@commands.command()
@click.argument("chapters", nargs=-1)
@options.parameters
@options.machines
@click.option(
    "--timeout", type=click.IntRange(1, _MOST_SECONDS), help="Most seconds for a cell.  [default: by profile]"
)
@click.option("--no-render", is_flag=True, help="Execute and judge, but do not make the site.")
@options.where
def build(
    chapters: tuple[str, ...],
    profile: str | None,
    seed: int | None,
    device: str | None,
    pairs: tuple[str, ...],
    jobs: int | None,
    workers: int | None,
    cluster: str | None,
    timeout: int | None,
    no_render: bool,
    root: Path | None,
    build_dir: Path | None,
) -> int:
    """Execute CHAPTERS (all by default) where needed, judge their claims and make the site."""
    from reproduced.run import lacking_data
    from reproduced.run.book import open_book, parameters
    from reproduced.run.build import build as build_book
    from reproduced.run.build import place_of, verdicts
    from reproduced.run.plan import registered_checksum
    from reproduced.run.progress import Progress

    book = open_book(root, build_dir)
    book.choose(chapters)
    given = parameters({"profile": profile, "seed": seed, "device": device}, pairs)
    machines = {"jobs": jobs, "workers": workers, "cluster": cluster}
    with Progress() as progress, place_of(book, chapters, given["device"], **machines, say=progress.say) as place:
        report = build_book(
            book,
            chapters,
            given,
            checksum=registered_checksum,
            place=place,
            cell_seconds=timeout,
            rendered=not no_render,
            progress=progress,
        )
    for fault in report.faults:
        click.echo(fault, err=True)
    if not no_render and (book.site / "index.html").is_file():
        click.echo(f"The book: {book.site / 'index.html'}")
    click.echo(f"Claims: {verdicts(report)}")
    if lacking := lacking_data.sentence(book, report.ledgers):
        click.echo(lacking)
    return 1 if report.faults else 0


@commands.command()
@click.argument("chapters", nargs=-1)
@click.option(
    "--seeds", type=click.IntRange(1, _MOST_SEEDS), default=10, show_default=True, help="How many for each claim."
)
@options.machines
@options.where
def replicate(
    chapters: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    workers: int | None,
    cluster: str | None,
    root: Path | None,
    build_dir: Path | None,
) -> int:
    """Judge CHAPTERS (all by default) at seeds drawn from the commit's hash, and keep the verdicts."""
    from reproduced.run import replications
    from reproduced.run.book import STANDARD, open_book
    from reproduced.run.build import place_of
    from reproduced.run.plan import registered_checksum
    from reproduced.run.progress import Progress
    from reproduced.run.replicate import replicate as replicate_book

    book = open_book(root, build_dir)
    machines = {"jobs": jobs, "workers": workers, "cluster": cluster}
    with (
        Progress() as progress,
        place_of(book, chapters, STANDARD["device"], **machines, say=progress.say) as place,
    ):
        faults = replicate_book(
            book, chapters, seeds=seeds, checksum=registered_checksum, place=place, progress=progress
        )
    for fault in faults:
        click.echo(fault, err=True)
    click.echo(f"Kept {replications.path_of(book)}.")
    return 1 if faults else 0


@commands.command()
@click.argument("chapter")
@options.where
def record(chapter: str, root: Path | None, build_dir: Path | None) -> int:
    """Keep the finished full-scale run of CHAPTER in book/records/, to be shown beside every later run."""
    from reproduced.run.book import open_book
    from reproduced.run.build import keep_record

    click.echo(f"Kept {keep_record(open_book(root, build_dir), chapter)}.")
    return 0


@commands.command()
@click.argument("names", nargs=-1)
@click.option("--needed", is_flag=True, help="The sets that claims need; a damaged file is named and left as it is.")
@click.option("--if-possible", is_flag=True, help="For a build: do not wait for a network, never fail, and be brief.")
@click.option("--root", type=FOLDER, help="The repository whose claims count; by default the one around this folder.")
def data(names: tuple[str, ...], needed: bool, if_possible: bool, root: Path | None) -> int:
    """Fetch the data sets NAMES; without a name, list what the book knows and what is here."""
    from leakage.data import registry
    from reproduced.run import datasets

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
        click.echo(f"leakage: {one_line(line.text)}" if line.fault else line.text, err=line.fault)
        faults += line.fault
    return 1 if faults and (names or needed) and not if_possible else 0


@commands.command()
@options.parameters
@options.where
def status(
    profile: str | None,
    seed: int | None,
    device: str | None,
    pairs: tuple[str, ...],
    root: Path | None,
    build_dir: Path | None,
) -> int:
    """Say for each chapter whether its results on disk are up to date, and what it found."""
    from reproduced.run.book import open_book, parameters
    from reproduced.run.build import state_lines
    from reproduced.run.plan import registered_checksum

    given = parameters({"profile": profile, "seed": seed, "device": device}, pairs)
    book = open_book(root, build_dir)
    for line in state_lines(book, given, checksum=registered_checksum):
        click.echo(line)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    try:
        return commands.main(arguments, prog_name="leakage", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return _REFUSED
    except (click.Abort, KeyboardInterrupt):
        return _end("interrupted; what was finished is kept, and the next build goes on from there.", _INTERRUPTED)
    except click.ClickException as error:
        return _end(error.format_message(), error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "leakage").partition(".")[0] == "leakage":
            raise
        extra = "cluster" if error.name in ("dask", "distributed") else "book"
        cure = f"install leakage[{extra}]: `pip install '.[{extra}]'` in the repository"
        return _end(f"this needs the package {error.name}, which is not installed; {cure}.", _REFUSED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _end(f"{where}{error.strerror or error}; what was finished is kept.", _FAILED)


def _end(message: str, status: int) -> int:
    """Say in one line why a command ended; its exit status."""
    with suppress(OSError):
        click.echo(f"leakage: {one_line(message)}", err=True)
    return status
