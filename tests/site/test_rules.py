"""The rules that judged the built book could have failed: moved far enough, each of their numbers changes a verdict."""

import json
from pathlib import Path

from leakage.claims import declarations, measurements
from leakage.claims.texts import NOT_JUDGED

ROOT = Path(__file__).parents[2]
EXPLAINED: dict[str, str] = {}


def test_every_number_of_a_rule_that_decided_could_have_decided_otherwise(site):
    (path,) = site.rglob("claims.json")
    idle = {}
    for ledger in json.loads(path.read_text("utf-8"))["chapters"]:
        declared = declarations.load(ROOT / "book" / "claims" / f"{ledger['chapter']}.yml").by_id
        for entry in ledger["claims"]:
            values = {one["name"]: measurements.from_json(one["measured"]) for one in entry["values"]}
            if values and entry["verdict"] not in (declarations.NOT_RUN, NOT_JUDGED):
                idle[entry["id"]] = declared[entry["id"]].idle(values)
    assert idle
    assert {name for name, numbers in idle.items() if numbers} == EXPLAINED.keys()
