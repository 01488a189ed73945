"""The commands of the book: build it, keep a record, replicate, fetch data, say what there is.

`leakage.command_line` runs them and has the rules of every command. Heavy modules are imported inside the commands.
"""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakage import arguments
from leakage.arguments import UserError, one_line
from leakage.command_line import FAILED, complain

_MOST = 1024  # jobs, and seeds
_ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/]+:[0-9]{1,5}")


# ── the options ─────────────────────────────────────────────────────────────────────────────────────────────────────


def add_commands(command: Callable[[Callable[[argparse.Namespace], int]], argparse.ArgumentParser]) -> None:
    """Add the commands of the book; `command` makes a parser of a function."""
    build_parser = command(build)
    build_parser.add_argument("chapters", metavar="CHAPTERS", nargs="*")
    _add_parameters(build_parser)
    _add_places(build_parser)
    build_parser.add_argument("--no-render", action="store_true", help="Execute and judge, but do not make the site.")
    _add_folders(build_parser)

    data_parser = command(data)
    data_parser.add_argument("names", metavar="NAMES", nargs="*")
    text = "The sets that claims need; a damaged file is named and left as it is."
    data_parser.add_argument("--needed", action="store_true", help=text)
    text = "For a build: do not wait for a network, never fail, and be brief."
    data_parser.add_argument("--if-possible", action="store_true", help=text)
    text = "The repository whose claims count; by default the one around this folder."
    data_parser.add_argument("--root", metavar="FOLDER", type=_folder, help=text)

    record_parser = command(record)
    record_parser.add_argument("chapter", metavar="CHAPTER")
    _add_folders(record_parser)

    replicate_parser = command(replicate)
    replicate_parser.add_argument("chapters", metavar="CHAPTERS", nargs="*")
    text = "How many for each claim.  [default: 10]"
    replicate_parser.add_argument("--seeds", metavar="N", type=_whole, default=10, help=text)
    _add_places(replicate_parser)
    _add_folders(replicate_parser)

    status_parser = command(status)
    _add_parameters(status_parser)
    _add_folders(status_parser)


def _add_parameters(parser: argparse.ArgumentParser) -> None:
    text = "smoke (seconds, nothing judged), ci (minutes) or paper (one GPU).  [default: ci]"
    parser.add_argument("--profile", help=text)
    parser.add_argument("--seed", type=int, help="Seed of every random stream.  [default: 0]")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N.  [default: auto]")


def _add_places(parser: argparse.ArgumentParser) -> None:
    text = "Chapters at a time.  [default: one for each core]"
    parser.add_argument("--jobs", metavar="N", type=_whole, help=text)
    named = os.environ.get("LEAKAGE_CLUSTER") or None
    text = "Execute on the workers of this scheduler of dask.  [default: LEAKAGE_CLUSTER]"
    parser.add_argument("--cluster", metavar="ADDRESS", default=named, help=text)


def _add_folders(parser: argparse.ArgumentParser) -> None:
    text = "The repository; by default the one around the current folder."
    parser.add_argument("--root", metavar="FOLDER", type=_existing_folder, help=text)
    text = "Where everything generated goes.  [default: ROOT/_build]"
    parser.add_argument("--build-dir", metavar="FOLDER", type=_folder, help=text)


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or not 1 <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST}; got {arguments.shown(text)}.")
    return int(text)


def _folder(text: str) -> Path:
    if not text or Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{arguments.shown(text)} is no folder.")
    return Path(text)


def _existing_folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {arguments.shown(text)}.")
    return _folder(text)


def _check_places(options: argparse.Namespace) -> None:
    """A `UserError` if more than one place to execute is given, or the address of a scheduler is none."""
    if options.jobs is not None and options.cluster is not None:
        raise UserError("--jobs and --cluster (or LEAKAGE_CLUSTER) exclude each other.")
    if options.cluster is not None and not _ADDRESS.fullmatch(options.cluster):
        shown = arguments.shown(options.cluster)
        raise UserError(f"a scheduler's address is tcp://HOST:PORT or tls://HOST:PORT; got {shown}.")


# ── the commands ──────────────────────────────────────────────────────────────────────────────────────────────────────


def build(options: argparse.Namespace) -> int:
    """Execute CHAPTERS (all by default) where needed, judge their claims and make the site."""
    _check_places(options)
    from reproduced import build as building
    from reproduced.pages.summaries import lacking_data
    from reproduced.run.book import open_book
    from reproduced.run.chapter_cache import read_commit
    from reproduced.run.executor import Progress

    book = open_book(options.root, options.build_dir)
    book.choose(options.chapters)
    parameters = _parameters(options)
    places = {"jobs": options.jobs, "cluster": options.cluster}
    with building.open_executor(book, options.chapters, parameters["device"], **places) as executor:
        report = building.build(
            book,
            options.chapters,
            parameters,
            executor=executor,
            rendered=not options.no_render,
            progress=Progress(),
        )
    for fault in report.faults:
        complain(fault)
    if reason := read_commit(book.root)[2]:
        complain(f"leakage: the results have no commit: {reason}")
    if not options.no_render and (book.site / "index.html").is_file():
        print(f"The book: {book.site / 'index.html'}")
    print(f"Claims: {building.verdict_line(report)}")
    if lacking := lacking_data(report.findings.values()):
        print(lacking)
    return FAILED if report.faults else 0


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    from reproduced.run.book import parameters

    return parameters({name: getattr(options, name) for name in ("profile", "seed", "device")})


def replicate(options: argparse.Namespace) -> int:
    """Judge CHAPTERS (all by default) at seeds drawn from the commit's hash, and keep the verdicts."""
    _check_places(options)
    from reproduced import replicate as replicating
    from reproduced.build import open_executor
    from reproduced.run import replications
    from reproduced.run.book import STANDARD, open_book
    from reproduced.run.executor import Progress

    book = open_book(options.root, options.build_dir)
    places = {"jobs": options.jobs, "cluster": options.cluster}
    with open_executor(book, options.chapters, str(STANDARD["device"]), **places) as executor:
        faults = replicating.replicate(
            book, options.chapters, seeds=options.seeds, executor=executor, progress=Progress()
        )
    for fault in faults:
        complain(fault)
    print(f"Kept {replications.file_path(book)}.")
    return FAILED if faults else 0


def record(options: argparse.Namespace) -> int:
    """Keep the finished full-scale run of CHAPTER in book/records/, to be shown beside every later run."""
    from reproduced.build import keep_record
    from reproduced.run.book import open_book

    print(f"Kept {keep_record(open_book(options.root, options.build_dir), options.chapter)}.")
    return 0


def data(options: argparse.Namespace) -> int:
    """Fetch the data sets NAMES; without a name, list what the book knows and what is here."""
    from leakage.data import datasets
    from reproduced.run import data_command

    for name in options.names:
        if name not in datasets.DATASETS:
            raise UserError(f"{name!r} is no data set; known are: {', '.join(datasets.DATASETS)}.")
    if (options.names and options.needed) or (options.if_possible and not options.needed):
        raise UserError("--needed goes without names, and --if-possible goes with it.")
    if options.needed:
        lines = data_command.fetch_needed(options.root, hurried=options.if_possible)
    else:
        lines = data_command.fetch(options.names) if options.names else data_command.list_datasets()
    faults = 0
    for line in lines:
        if line.fault:
            faults += 1
            complain(f"leakage: {one_line(line.text)}")
        else:
            print(line.text)
    return FAILED if faults and (options.names or options.needed) and not options.if_possible else 0


def status(options: argparse.Namespace) -> int:
    """Say for each chapter whether its results on disk are up to date, and what it found."""
    from reproduced.build import state_lines
    from reproduced.run.book import open_book

    parameters = _parameters(options)
    for line in state_lines(open_book(options.root, options.build_dir), parameters):
        print(line)
    return 0
