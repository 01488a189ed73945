"""A claims file in miniature, as the values in it."""

from pathlib import Path

import yaml

HEAD = {"chapter": "toy", "prefix": "t", "title": "A toy", "paper": "toy2020"}


def claim(name: str, **fields) -> dict:
    entry = {"id": name, "kind": "figure", "claim": "That $|x| < 2$.", "where": "Figure 1", "expected": "held"}
    rules = {"values": {"x": "what is measured"}, "holds": "x.high < 2", "refuted": "x.low > 2", "why": "Seen."}
    return entry | rules | fields


def declaration(**changes) -> dict:
    ours = claim("t.beyond.more", kind="ours", expected="did not hold")
    del ours["where"]
    listed = [
        claim("t.one", paper=0.60),
        claim("t.two", expected="held in part", in_part="x.low < 2", why="Up to {x}."),
        claim("t.data", needs=["mnist"]),
        claim("t.large", profile="paper"),
        ours,
    ]
    return {**HEAD, "data": ["mnist"], "claims": listed} | changes


def save(folder: Path, content: dict | str) -> Path:
    """Write a claims file, given as its values or as its text, and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / "toy.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True), "utf-8")
    return path
