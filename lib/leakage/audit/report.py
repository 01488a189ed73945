"""What an audit is saved as: one HTML page that needs no network, and JSON.

Every text that came from outside is escaped, and the picture is part of the page. A file is there completely or as it
was before. Nothing here computes.
"""

import html
import json
from string import Template
from typing import Any

from leakage import __version__
from leakage.audit.result import Audit
from leakage.audit.tables import Table
from leakage.metrics.intervals import Estimate

_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Membership audit</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
svg { max-width: 100%; height: auto; }
footer { color: #555; font-size: 0.9rem; }
</style>
</head>
<body>
<h1>Membership audit</h1>
$summary
<h2>ROC curves</h2>
<figure role="img" aria-label="True against false positive rates of every attack, on logarithmic axes">$picture</figure>
<h2>Most exposed rows</h2>
<p>Members that the strongest attack finds while it accuses few outsiders; <em>outranks</em> is the share of the
outsiders whose score is lower.</p>
$records
$slices
<footer>Made by leakage $version. A larger score means a likelier member. AUC ½ and advantage 0 are guessing.</footer>
</body>
</html>
""")


def sentence(audit: Audit) -> str:
    """The finding in one sentence."""
    best = audit.strongest
    what = f"{len(audit.targets)} models" if len(audit.targets) > 1 else "1 model"
    seen = {fpr: found for fpr, found in best.tpr.items() if found is not None}
    rates = "".join(
        f", and finds {_percent(found)} of the members at {100 * fpr:g} % FPR" for fpr, found in seen.items()
    )
    least = audit.at_least("auc")
    return (
        f"On {what} of {audit.member.shape[1]:,} rows the strongest attack, {best.attack}, reaches AUC "
        f"{best.auc:.3f}{rates}; allowing for its choice among several, AUC {least:.3f} at least."
    )


def summary(audit: Audit, table: Table) -> str:
    """The finding, the table and the notes, as HTML."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in audit.notes)
    return f"<p><strong>{html.escape(sentence(audit))}</strong></p>{table._repr_html_()}<ul>{notes}</ul>"


def page(audit: Audit, *, table: Table, picture: str, records: Table, slices: Table) -> str:
    """The whole page; `picture` is an SVG element of ours and goes in as it is."""
    parts = f"<h2>Slices</h2>\n{slices._repr_html_()}" if len(slices) else ""
    return _PAGE.substitute(
        summary=summary(audit, table),
        picture=picture,
        records=records._repr_html_(),
        slices=parts,
        version=html.escape(__version__),
    )


def as_json(audit: Audit, *, records: Table, slices: Table) -> str:
    """Strict JSON, without NaN or infinity."""
    content = {
        "leakage": __version__,
        "models": audit.models,
        "targets": list(audit.targets),
        "rows": audit.member.shape[1],
        "level": audit.level,
        "strongest": audit.strongest.attack,
        "attacks": [
            {
                "attack": row.attack,
                "sees": row.sees,
                "auc": _plain(row.auc),
                "advantage": _plain(row.advantage),
                "tpr": {f"{fpr:g}": _plain(found) for fpr, found in row.tpr.items()},
            }
            for row in audit.results
        ],
        "records": [{name: _plain(value) for name, value in row.items()} for row in records],
        "slices": [{name: _plain(value) for name, value in row.items()} for row in slices],
        "notes": list(audit.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _percent(found: Estimate) -> str:
    return f"{100 * found.estimate:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, Estimate):
        return {"estimate": value.estimate, "low": value.low, "high": value.high}
    return value
