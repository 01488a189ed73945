"""The command line `leakage`: audit saved losses; in the repository of the book, build it and look at what there is.

Each command checks its arguments, calls one function and turns the result into lines and an exit status: 0 if all is
well, 1 if something failed (one line for each fault on stderr, what was finished is kept), 2 if the request cannot be
carried out (one line on stderr, nothing changed), 130 if it was interrupted. Heavy modules are imported inside the
commands, so that help is instant. The commands of the book are in `reproduced`, which the wheel does not have; where
it is installed, it adds them.
"""

import argparse
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from xml.etree import ElementTree

from leakage import __version__
from leakage.arguments import UserError, one_line

if TYPE_CHECKING:
    from leakage.audit.forms import Audit
    from leakage.audit.gates import Gate, GateResult

FAILED = 1  # the exit status of a command that was carried out and found or met a fault
_REFUSED, _INTERRUPTED = 2, 130
_OF_THE_BOOK = ("build", "data", "record", "replicate", "status")
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
        if words[0] in _OF_THE_BOOK and "reproduced" not in sys.modules:
            raise UserError(f"{words[0]} is a command of the book; clone its repository and run `make book` there.")
        options = parser.parse_args(words)
        return options.run(options)
    except KeyboardInterrupt:
        kept = "what was finished is kept, and the next build goes on from there"
        return _end(f"interrupted; {kept if words[0] in _OF_THE_BOOK else 'nothing was written'}.", _INTERRUPTED)
    except UserError as error:
        return _end(str(error), error.status)
    except ModuleNotFoundError as error:
        if (error.name or "leakage").partition(".")[0] in ("leakage", "reproduced"):
            raise
        extra = "cluster" if error.name in ("dask", "distributed") else "book"
        cure = f"install leakage[{extra}]: `pip install -c requirements.txt -e '.[{extra}]'` in the repository"
        cure = cure if words[0] in _OF_THE_BOOK else "install leakage again, with what it needs"
        return _end(f"this needs the package {error.name}, which is not installed; {cure}.", _REFUSED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _end(f"{where}{error.strerror or error}; what was finished is kept.", FAILED)


def _end(message: str, status: int) -> int:
    """Say in one line why a command ended; its exit status."""
    with suppress(OSError):
        complain(f"leakage: {one_line(message)}")
    return status


def complain(line: str) -> None:
    """Print a line on the standard error."""
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
        description="Privacy attacks on trained models: audit a model; in the repository of the book, build it.",
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

    with suppress(ModuleNotFoundError):  # the wheel has no `reproduced`
        import_module("reproduced.command_line").add_commands(command)
    return parser


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
        complain(f"leakage: {warning}")
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
            complain(f"leakage: {one_line(str(gate))}")
    return FAILED if any(gate.failed for gate in judged) else 0


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
