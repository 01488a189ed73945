"""An audit's replicates as errands: what a worker measures without some of the models, and what of it is believed.

Scores are not sent: a worker reads its own file of that name, which must have the digest of the one here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import click
import torch

from leakage import checked_files, content_keys
from leakage.auditing import jackknife, scores_file
from leakage.auditing.given import Given, given
from leakage.auditing.jackknife import Again, Means
from leakage.checked_files import Damaged
from leakage.fingerprints import fingerprint
from reproduced.run.cluster import Call, Misfit, Pool, pool, this_worker
from reproduced.run.equipment import Equipment, Needs, equipment, unlike
from reproduced.run.worker import one_line

_NEEDS = Needs(packages=(), data=(), device="cpu")


@contextmanager
def elsewhere(scores: Path, *, workers: int | None, cluster: str | None, say: Callable[[str], None]) -> Iterator[Again]:
    """Measures again on so many workers of this machine, or on those of a scheduler.

    Raises:
        Refusal: as `cluster.pool`.
    """
    with pool(_NEEDS, content_keys.PACKAGE, address=cluster, workers=workers, say=say) as found:
        yield partial(_again, scores=scores.resolve(), pool=found)


def _again(parts: Sequence[Sequence[int]], metrics: Sequence[str], *, scores: Path, pool: Pool) -> Sequence[Means]:
    """The means without each part, in the order of the parts, whoever is ready first."""
    digest = _digest(scores)
    calls = {}
    for part in map(tuple, parts):
        key = fingerprint((digest, part, tuple(metrics)))
        calls[part] = Call(key, f"without {len(part)} models", (scores, digest, part, tuple(metrics), pool.wanted))
    found = {}
    for call, means in pool.results(measured, calls.values(), believed):
        if isinstance(means, Exception):
            raise click.ClickException(one_line(f"not audited: {type(means).__name__}: {means}"))
        found[call.key] = means
    return [found[call.key] for call in calls.values()]


def measured(scores: Path, digest: str, part: Sequence[int], metrics: Sequence[str], wanted: Equipment) -> bytes:
    """The means without some models, as this worker finds them, packed."""
    said = {"worker": this_worker().address, "part": list(part)}
    if differs := unlike(wanted, equipment(_NEEDS)):
        return checked_files.pack(said | {"unlike": differs})
    try:
        known = _known(scores, digest)
    except (OSError, ValueError):
        return checked_files.pack(said | {"unlike": [f"the file {scores.name}"]})
    return checked_files.pack(said | {"unlike": [], "means": dict(jackknife.without(known, part, metrics))})


@lru_cache(maxsize=1)  # a worker measures several parts of one file
def _known(scores: Path, digest: str) -> Given:
    if _digest(scores) != digest:
        raise Damaged("it is another file")
    return given(**scores_file.read(scores))


def _digest(scores: Path) -> str:
    files = sorted(scores.glob("*.npy")) if scores.is_dir() else [scores]
    return fingerprint([(file.name, content_keys.file_digest(file)) for file in files])


def believed(call: Call, content: bytes) -> Means:
    """The means, of what a worker has sent for a part."""
    found = checked_files.unpack(content)
    *_, part, metrics, _ = call.arguments
    try:
        if found["unlike"]:
            raise Misfit(found["worker"], found["unlike"])
        if tuple(found["part"]) != part:
            raise Damaged("it is another part's")
        means = found["means"]
        if any(value.dtype != torch.float64 or value.shape != (len(metrics),) for value in means.values()):
            raise Damaged("it holds no means")
        return means
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"it holds no means ({type(error).__name__})") from error
