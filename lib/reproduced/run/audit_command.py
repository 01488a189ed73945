"""The command `leakage audit`: judge saved losses, write a page, and fail where the leak passes a bar.

The exit status is 1 where the *lower* end of the strongest attack's interval exceeds a bar, 2 with one line where the
file or a bar cannot be used; then nothing is written. The interval allows for the best of several attacks being taken
(`Audit.at_least`). It needs none of the packages of the book.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from reproduced.run import options

_BAR = re.compile(r"([a-z]+(?:@[0-9.e-]+)?)=([0-9]{0,20}\.?[0-9]{0,20})")


@click.command("audit")
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write one HTML page.")
@click.option("--json", "as_json", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers as JSON.")
@click.option(
    "--fail-above",
    "bars",
    multiple=True,
    metavar="METRIC=VALUE",
    help="Exit 1 if auc, advantage or tpr@F surely exceeds VALUE; may be given again.",
)
@click.option("--level", default=0.95, show_default=True, help="Of the intervals.")
@options.elsewhere
def audit(
    scores: Path,
    report: Path | None,
    as_json: Path | None,
    bars: tuple[str, ...],
    level: float,
    workers: int | None,
    cluster: str | None,
) -> int:
    """Audit the losses in SCORES, an .npz file with `losses` (models, rows) and `member`.

    It may hold target, population, correct, labels and groups besides; see `leakage.audit.of_losses`. Or SCORES is a
    folder with losses.npy, member.npy and so on, which may be larger than memory: an audit of one target holds some
    200 MB and 200 bytes a row.

    Where several models are attacked, everything is measured again without each tenth of them, for the intervals: ten
    tasks for workers, which must find SCORES where it is here.
    """
    wanted = [_bar(text) for text in bars]
    taken = {scores.resolve(), *(file.resolve() for file in scores.glob("*.npy"))}
    for path in (one for one in (report, as_json) if one is not None):
        if not path.name:
            raise click.UsageError("a file must have a name.")
        if path.resolve() in taken or (report and as_json and report.resolve() == as_json.resolve()):
            raise click.UsageError(f"{path} would be overwritten; give each file a name of its own.")
        if not path.absolute().parent.is_dir():
            raise click.UsageError(f"{path.parent} is no folder, so that {path.name} cannot be written there.")
    # Heavy modules are imported late, so that help is instant.
    from leakage import audit as audits
    from leakage import checked_files
    from leakage.auditing import scores_file
    from leakage.auditing.audited import audited
    from leakage.auditing.exposure import check_metric
    from leakage.auditing.given import given

    try:
        rates = {float(check_metric(metric)[4:]) for metric, _ in wanted if metric.startswith("tpr@")}
        for metric, _ in wanted:
            check_metric(metric)
        fprs = sorted({*audits.FPRS, *rates}, reverse=True)
        known = given(**scores_file.read(scores))
        with _place(scores, workers=workers, cluster=cluster) as again:
            found = audited(known, fprs=fprs, level=level, again=again)
        failed = [(metric, bar, low) for metric, bar in wanted if (low := found.at_least(metric)) > bar]
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    click.echo(str(found))  # first, for a file that cannot be written shall not cost the answer
    try:
        if report:
            found.report(report)
        if as_json:
            checked_files.hand_out(as_json, found.to_json().encode())
    except ValueError as error:  # letters of a group's name that cannot be written
        raise click.UsageError(str(error)) from error
    for metric, bar, low in failed:
        click.echo(f"leakage: {metric} is at least {low:.4g}, which exceeds {bar:g}.", err=True)
    return 1 if failed else 0


@contextmanager
def _place(scores: Path, *, workers: int | None, cluster: str | None) -> Iterator[Any]:
    """Who measures again without some models: None if it is this process."""
    if not options.check_place(workers=workers, cluster=cluster):
        yield None
        return
    from reproduced.run.audit_errands import elsewhere  # dask, only for its workers

    with elsewhere(scores, workers=workers, cluster=cluster, say=partial(click.echo, err=True)) as again:
        yield again


def _bar(text: str) -> tuple[str, float]:
    """The metric and the number of `METRIC=VALUE`."""
    parts = _BAR.fullmatch(text)
    if not parts or not re.search("[0-9]", parts[2]):
        raise click.UsageError(f"--fail-above must be METRIC=VALUE, such as tpr@0.01=0.05, got {text!r}.")
    return parts[1], float(parts[2])
