"""The rules that judged the built book could have failed: moved far enough, each of their numbers changes a verdict."""

import json

# Rules with a number that decides nothing, and why they may have one.
EXPLAINED: dict[str, str] = {}


def test_every_number_of_a_rule_that_decided_could_have_decided_otherwise(site):
    (path,) = site.rglob("claims.json")
    chapters = json.loads(path.read_text("utf-8"))["chapters"]
    idle = {claim["id"]: claim["idle"] for chapter in chapters for claim in chapter["claims"]}
    assert {name for name, numbers in idle.items() if numbers} == EXPLAINED.keys()
