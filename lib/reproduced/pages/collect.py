"""From executed notebooks to ledgers: records are gathered from the outputs, completed and compared with the declared.

A ledger is derived from one executed notebook and its claims file alone. Nothing here executes, and a fault of a ledger
is a sentence that begins with the id of the claim.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nbformat import NotebookNode

from reproduced.claims import measurements
from reproduced.claims.declarations import NOT_RUN, Claim, Declarations
from reproduced.claims.ledger import RECORD, missing_data_text
from reproduced.claims.texts import NOT_JUDGED, measured_text, rule_text
from reproduced.run.chapter_cache import ABSENT, PROVENANCE, REPRO

_RUN = ("profile", "seed", "seconds")


def records(notebook: NotebookNode) -> list[dict[str, Any]]:
    """All claim records in the outputs of a notebook, in order."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.get("outputs", ()))
    return [dict(output["metadata"][RECORD]) for output in outputs if RECORD in output.get("metadata", {})]


def make_ledger(notebook: NotebookNode, declared: Declarations) -> dict[str, Any]:
    """The ledger of an executed notebook: where it comes from, and every declared claim with its record.

    A claim without a record is "not run", with the reason. What was recorded and not declared is left out here and
    found by `faults`.
    """
    repro = notebook.metadata[REPRO]
    found = {record["id"]: record for record in reversed(records(notebook))}
    claims = [_entry(claim, found.get(claim.id) or _missing(claim, repro)) for claim in declared.claims]
    origin = {name: repro[name] for name in (*PROVENANCE, *_RUN)}
    return {"chapter": declared.chapter, **origin, "claims": claims}


def _missing(claim: Claim, repro: Mapping[str, Any]) -> dict[str, Any]:
    profile, why = repro["profile"], _absence(claim, repro)
    if profile == "smoke":
        verdict, reason = NOT_JUDGED, ""
    elif not claim.is_judgeable(profile):
        verdict, reason = NOT_RUN, f"This needs the profile {claim.profile}."
    else:
        verdict, reason = NOT_RUN, why or "The chapter did not judge it."
    return {"id": claim.id, "verdict": verdict, "reason": reason}


def _absence(claim: Claim, repro: Mapping[str, Any]) -> str:
    """Why the claim could not be judged when the notebook was executed, "" if its data were here."""
    return missing_data_text(claim, lambda name: repro["data"].get(name, ABSENT) == ABSENT)


def _entry(claim: Claim, record: Mapping[str, Any]) -> dict[str, Any]:
    empty = {"values": [], "rule": None, "seconds": None}
    values = {one["name"]: measurements.from_json(one["measured"]) for one in record.get("values", ())}
    judged = record["verdict"] not in (NOT_RUN, NOT_JUDGED)
    # A chapter that ran before the claim was declared anew has measured other values, to which the rules do not apply.
    current = values.keys() == claim.values.keys()
    idle = list(claim.unused_thresholds(values)) if judged and current else []
    texts = {"claim": claim.claim, "where": claim.where or None, "paper": claim.paper or None, "how": rule_text(claim)}
    kept = {name: value for name, value in record.items() if name not in ("profile", "seed", "device")}
    expectation = {"expected": claim.expected, "least_profile": claim.profile, "kind": claim.kind, "idle": idle}
    expectation |= {"shows": claim.summary(values) if current else "", "exact": claim.exact}
    return empty | kept | texts | expectation


def faults(notebook: NotebookNode, declared: Declarations) -> list[str]:
    """What is wrong with the judgements of an executed notebook, one line each; nothing is asked of a smoke run."""
    repro = notebook.metadata[REPRO]
    profile, found = repro["profile"], records(notebook)
    counts = Counter(record["id"] for record in found)
    lines = [f"{name}: recorded {times} times" for name, times in counts.items() if times > 1]
    lines += [f"{name}: recorded, but not declared" for name in counts if name not in declared.by_id]
    if profile == "smoke":
        return lines
    by_id = {record["id"]: record for record in found}
    return lines + [
        line
        for claim in declared.by_id.values()
        if claim.is_judgeable(profile) and (line := _difference(claim, by_id.get(claim.id), _absence(claim, repro)))
    ]


def _difference(claim: Claim, record: Mapping[str, Any] | None, absent: str) -> str:
    """How a judgement differs from the declared one, "" if it does not or if its data were absent."""
    if absent:
        judged = record is not None and record["verdict"] != NOT_RUN
        return f"{claim.id}: judged {record['verdict']}, although its data were absent" if record and judged else ""
    if record is None:
        return "" if claim.expected == NOT_RUN else f"{claim.id}: expected {claim.expected}, not run: no record of it"
    if record["verdict"] == claim.expected:
        return ""
    if record["verdict"] == NOT_RUN:
        return f"{claim.id}: expected {claim.expected}, not run, although its data are here: {record['reason']}"
    value = measured_text(record)
    return f"{claim.id}: expected {claim.expected}, measured {record['verdict']}: {value} against {record['rule']}"


def counts(ledgers: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many claims of which kind have which verdict."""
    return Counter((claim["kind"], claim["verdict"]) for ledger in ledgers for claim in ledger["claims"])
