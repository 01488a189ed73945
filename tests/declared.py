"""A claims file in miniature, as the values in it."""

from pathlib import Path

import yaml

HEAD = {"chapter": "toy", "prefix": "t", "title": "A toy", "paper": "toy2020"}


def claim(name: str, **fields) -> dict:
    entry = {"id": name, "claim": "That $|x| < 2$.", "where": "Figure 1", "rule": "x < 2", "profile": "ci"}
    return entry | {"expected": "held"} | fields


def declaration(**changes) -> dict:
    ours = claim("t.beyond.more", expected="did not hold")
    del ours["where"]
    listed = [
        claim("t.one", paper=0.60),
        claim("t.two", expected="held in part"),
        claim("t.data", needs=["mnist"]),
        claim("t.large", profile="paper"),
    ]
    return {**HEAD, "data": ["mnist"], "claims": listed, "beyond": [ours]} | changes


def save(folder: Path, content: dict | str) -> Path:
    """Write a claims file, given as its values or as its text, and return its path."""
    path = folder / "toy.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True), "utf-8")
    return path
