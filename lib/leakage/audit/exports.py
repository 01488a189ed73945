"""JSON export of an audit, with provenance, and the losses that were audited."""

import io
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leakage import __version__, store
from leakage.audit.gates import GateResult
from leakage.audit.inputs import find_targets
from leakage.audit.result import AttackSummary, AuditResult
from leakage.metrics.estimates import Estimate

SCHEMA = 1
"""The version of the JSON's keys. It grows by one if a key changes its name or its meaning, not with a new key."""


def to_json(audit: AuditResult, *, gates: Sequence[GateResult], source: Path | None) -> str:
    """The audit as strict JSON, without NaN or infinity; null where there is no value."""
    exposed_rate, slice_rate = {"at_fpr": audit.least_fpr}, {"fpr": audit.slice_fpr}
    exposed = audit.exposed_rows()
    exposed_keys = [column.lower().replace(" ", "_") for column in exposed.columns]
    slice_keys = ("by", "slice", "members", "outsiders", "auc", "tpr", "note")
    content = {
        "schema": SCHEMA,
        **provenance(source),
        "design": describe_design(audit),
        "models": audit.models,
        "targets": list(audit.targets),
        "rows": audit.evaluation.models.member.shape[1],
        "units": None if audit.units is None else len(audit.units),
        "outsiders": audit.outsiders,
        "level": audit.level,
        "headline": audit.headline,
        "strongest": audit.strongest.attack,
        "attacks": [
            {**_summary(row), "sentence": audit.evaluation.results[row.attack].attack.sentence} for row in audit.results
        ],
        "baseline": audit.baseline and _summary(audit.baseline),
        "exposed_rows": [dict(zip(exposed_keys, row, strict=True)) | exposed_rate for row in exposed.rows],
        "slices": [dict(zip(slice_keys, row, strict=True)) | slice_rate for row in audit.slices().rows],
        "gates": [asdict(gate) for gate in gates],
        "verdict": verdict(gates),
        "notes": list(audit.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=_interval)


def losses_file(audit: AuditResult) -> bytes:
    """An `.npz` file of what was attacked but features, under the names of the arguments of `audit.of_losses`."""
    models, targets = audit.evaluation.models, audit.targets
    if len(targets) > 1 and targets != find_targets(models.unit_member, None):
        raise ValueError(f"a file cannot name several targets, here {[*targets]}; audit one, or all.")
    arrays = {"losses": models.losses, "member": models.member, "correct": models.saved_correct}
    arrays |= {"population": models.population}
    arrays = {name: table.numpy() for name, table in arrays.items() if table is not None}
    own_row = slice(None) if models.units is None else models.units.numpy()
    names = {"labels": audit.labels, "groups": audit.groups, "units": audit.units}
    arrays |= {name: values[own_row] for name, values in names.items() if values is not None}
    arrays |= {"target": np.array(targets[0])} if len(targets) == 1 else {}
    arrays |= {} if models.probabilities else {"probabilities": np.array(False)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def verdict(gates: Sequence[GateResult]) -> str | None:
    """`failed` if a gate has failed, else `passed`; None without gates."""
    return ("failed" if any(gate.failed for gate in gates) else "passed") if gates else None


def provenance(source: Path | None) -> dict[str, Any]:
    """The date in UTC, versions, and the name and SHA-256 of the file that was audited."""
    versions = {"leakage": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {**versions, "python": platform.python_version()},
        "input": None if source is None else {"file": source.name, "sha256": store.checksum(source)},
    }


def describe_design(audit: AuditResult) -> str:
    """Which models there are, in words."""
    models = audit.evaluation.models
    if len(audit.targets) == 1:
        return "one target and shadow models" if audit.models > 1 else "one model"
    return "complementary pairs" if models.partner is not None else "subsets"


def _summary(row: AttackSummary) -> dict[str, Any]:
    rates = [{"fpr": fpr, **_interval(tpr)} for fpr, tpr in row.tpr.items()]
    return {"attack": row.attack, "sees": row.sees, "auc": row.auc, "advantage": row.advantage, "tpr": rates}


def _interval(estimate: Estimate | None) -> dict[str, float | None]:
    names = ("estimate", "low", "high")
    return {name: None if estimate is None else getattr(estimate, name) for name in names}
