"""The command line `leakage`: build the book, keep a record, fetch data, look at what there is, audit saved losses.

Each command checks its arguments, calls one function and turns the result into lines and an exit status: 0 if all is
well, 1 if something failed (one line for each fault on stderr, what was finished is kept), 2 if the request cannot be
carried out (one line on stderr, nothing changed), 130 if it was interrupted. Heavy modules are imported inside the
commands, so that help is instant and `audit` needs none of the packages of the book.
"""

import argparse
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from xml.etree import ElementTree

from leakage import __version__, arguments
from reproduced.repository import UserError
from reproduced.run.notebook_process import one_line

if TYPE_CHECKING:
    from leakage.audit.forms import Audit
    from leakage.audit.gates import Gate, GateResult

_FAILED, _REFUSED, _INTERRUPTED = 1, 2, 130
_MOST = 1024  # jobs, and seeds
_ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/]+:[0-9]{1,5}")
_LIMIT = re.compile(r"((?:slice:)?[a-z]+(?:@[0-9.e-]+)?)=([0-9]{0,20}\.?[0-9]{0,20})")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console of Windows may lack ≥
    parser = _parser()
    words = sys.argv[1:] if words is None else words
    try:
        if not words:
            parser.print_help()
            return _REFUSED
        options = parser.parse_args(words)
        return options.run(options)
    except KeyboardInterrupt:
        return _end("interrupted; what was finished is kept, and the next build goes on from there.", _INTERRUPTED)
    except UserError as error:
        return _end(str(error), error.status)
    except ModuleNotFoundError as error:
        if (error.name or "leakage").partition(".")[0] in ("leakage", "reproduced"):
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
        _complain(f"leakage: {one_line(message)}")
    return status


def _complain(line: str) -> None:
    print(line, file=sys.stderr)


# ── the options ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="leakage",
        allow_abbrev=False,
        description="Privacy Leakage, Reproduced: run the attacks, judge the claims, build the book, audit a model.",
    )
    parser.add_argument("--version", action="version", version=f"leakage, version {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        text = inspect.getdoc(run) or ""
        summary = " ".join(text.partition("\n\n")[0].split())
        more = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        added = commands.add_parser(run.__name__, help=summary, description=text, **more)
        added.set_defaults(run=run)
        return added

    audit_parser = command(audit)
    audit_parser.add_argument("scores", metavar="SCORES", type=Path)
    audit_parser.add_argument("--report", metavar="FILE", type=Path, help="Write one HTML page.")
    text = "Title of the page.  [default: Membership audit]"
    audit_parser.add_argument("--title", metavar="TEXT", default="Membership audit", help=text)
    text = "Write the numbers as JSON; - for the standard output, with the table on the standard error."
    audit_parser.add_argument("--json", metavar="FILE", type=Path, help=text)
    audit_parser.add_argument("--junit", metavar="FILE", type=Path, help="Write a test case for each --fail-above.")
    text = (
        "Exit 1 if auc, advantage or tpr@F exceeds VALUE with confidence, or that of the worst slice, as in "
        "slice:tpr@0.01; may be given several times."
    )
    audit_parser.add_argument(
        "--fail-above", dest="limits", action="append", default=[], metavar="METRIC=VALUE", help=text
    )
    text = "Confidence level of the intervals.  [default: 0.95]"
    audit_parser.add_argument("--level", type=float, default=0.95, help=text)

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
    return parser


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


# ── the commands ────────────────────────────────────────────────────────────────────────────────────────────────────


def audit(options: argparse.Namespace) -> int:
    """Audit the losses in SCORES, an .npz file with `losses` (models, rows) and `member`.

    The file may also hold target, population, correct, labels, groups, units, features
    and probabilities; of one model, `member_losses` and `outsider_losses` in place of
    `losses` and `member`. See `leakage.audit.of_losses`. SCORES may also be a folder with
    losses.npy, member.npy and so on.

    Exit status:
      0  no limit of --fail-above was exceeded
      1  one was: the lower end of the strongest attack's interval, corrected for the
         choice of the best of several attacks, exceeds it; or a file was not written
      2  the request cannot be met, and nothing is written: the file cannot be used, no
         scores could exceed a limit on so few rows (it says how many are needed), a
         slice too small to prove it seems to exceed one, members have the larger
         losses, or no shadow models show the thresholds behind an advantage
    """
    limits = [_parse_limit(text) for text in options.limits]
    if options.junit and not limits:
        raise UserError("--junit needs --fail-above: it has a test case for each of them.")
    piped = options.json == Path("-")
    files = (options.report, options.junit, None if piped else options.json)
    _check_outputs(options.scores, [path for path in files if path is not None])
    from leakage import store
    from leakage.audit.gates import Gate

    try:
        gates = [Gate(metric, bar) for metric, bar in limits]
        result = _audit_file(options.scores, gates, level=options.level)
        judged = result.judge(gates)
    except (ValueError, TypeError) as error:
        raise UserError(str(error)) from error
    # The table comes first, so that it is there even if a file cannot be written.
    print(result, file=sys.stderr if piped else sys.stdout, flush=True)
    for warning in result.warnings:
        _complain(f"leakage: {warning}")
    try:
        if options.report:
            result.report(options.report, title=options.title, gates=judged, source=options.scores)
        if piped:
            sys.stdout.buffer.write(result.to_json(gates=judged, source=options.scores).encode() + b"\n")
        elif options.json:
            store.write(options.json, result.to_json(gates=judged, source=options.scores).encode())
        if options.junit:
            store.write(options.junit, _to_junit(judged, name=f"leakage audit {options.scores.name}"))
    except ValueError as error:  # a group's name that UTF-8 cannot write
        raise UserError(str(error)) from error
    for gate in judged:
        if gate.failed or gate.too_small:
            _complain(f"leakage: {one_line(str(gate))}")
    return _FAILED if any(gate.failed for gate in judged) else 0


def _audit_file(scores: Path, gates: "Sequence[Gate]", *, level: float) -> "Audit":
    """The audit of a file at the usual false positive rates and those of the gates."""
    from leakage.audit import FPRS
    from leakage.audit.gates import SLICE
    from leakage.audit.inputs import inputs_from_file
    from leakage.audit.run import check_options, run_audit

    metrics = [gate.metric.removeprefix(SLICE) for gate in gates]
    fprs = sorted({*FPRS, *(float(metric[4:]) for metric in metrics if metric.startswith("tpr@"))}, reverse=True)
    options = check_options(fprs, level)
    inputs = inputs_from_file(scores)
    if inputs.labels is None and inputs.groups is None and any(gate.metric.startswith(SLICE) for gate in gates):
        raise UserError(f"a bar on {SLICE}… needs `labels` or `groups` in {scores}.")
    return run_audit(inputs, options)


def _to_junit(results: "Sequence[GateResult]", *, name: str) -> bytes:
    """The gates as JUnit XML, which services of continuous integration show: a test case for each, with its bound."""
    counts = {"tests": len(results), "failures": sum(one.failed for one in results), "errors": 0}
    suite = ElementTree.Element("testsuite", {"name": _printable(name), **{key: f"{n}" for key, n in counts.items()}})
    for one in results:
        case = {"classname": "leakage.audit", "name": f"{one.metric} <= {one.bar:g}"}
        found = ElementTree.SubElement(suite, "testcase", case)
        if one.failed:
            ElementTree.SubElement(found, "failure", {"message": _printable(str(one))})
        else:
            ElementTree.SubElement(found, "system-out").text = _printable(str(one))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """The text without characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _parse_limit(text: str) -> tuple[str, float]:
    """The metric and the number in `METRIC=VALUE`."""
    parts = _LIMIT.fullmatch(text)
    if not parts or not re.search("[0-9]", parts[2]):
        raise UserError(f"--fail-above must be METRIC=VALUE, such as tpr@0.01=0.05, got {text!r}.")
    return parts[1], float(parts[2])


def _check_outputs(scores: Path, files: Sequence[Path]) -> None:
    """Raise `UserError` unless each file can be written and overwrites neither the scores nor another of them."""
    taken = {scores.resolve(), *(file.resolve() for file in scores.glob("*.npy"))}
    for path in files:
        if not path.name:
            raise UserError("a file must have a name.")
        if os.path.isdir(path):  # unlike `Path.is_dir`, never raises for a strange name
            raise UserError(f"{path} is a folder.")
        if path.resolve() in taken:
            raise UserError(f"{path} would be overwritten; give each file a name of its own.")
        if not path.absolute().parent.is_dir():
            raise UserError(f"{path.parent} is no folder, so that {path.name} cannot be written there.")
        taken.add(path.resolve())


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
        _complain(fault)
    if reason := read_commit(book.root)[2]:
        _complain(f"leakage: the results have no commit: {reason}")
    if not options.no_render and (book.site / "index.html").is_file():
        print(f"The book: {book.site / 'index.html'}")
    print(f"Claims: {building.verdict_line(report)}")
    if lacking := lacking_data(report.findings.values()):
        print(lacking)
    return _FAILED if report.faults else 0


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
        _complain(fault)
    print(f"Kept {replications.file_path(book)}.")
    return _FAILED if faults else 0


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
            _complain(f"leakage: {one_line(line.text)}")
        else:
            print(line.text)
    return _FAILED if faults and (options.names or options.needed) and not options.if_possible else 0


def status(options: argparse.Namespace) -> int:
    """Say for each chapter whether its results on disk are up to date, and what it found."""
    from reproduced.build import state_lines
    from reproduced.run.book import open_book

    parameters = _parameters(options)
    for line in state_lines(open_book(options.root, options.build_dir), parameters):
        print(line)
    return 0
