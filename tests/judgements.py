"""Judgements of a toy chapter, for the tests of what the pages say of them."""

from reproduced.claims import measurements
from reproduced.claims.declarations import Claim
from reproduced.claims.rules import Rule
from reproduced.pages.ledgers import Chapter, ChapterFindings, Judgement

TOY = Chapter("toy", "A toy", "3", "Is it?", "It is.", "P", "A", "2020", "toy2020")
X = {"kind": "estimate", "estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5, "level": 0.95}
RUN = {"commit": "a" * 40, "dirty": False, "profile": "ci", "seed": 0, "device": "cpu", "device_name": "CPU, 2 cores"}
RUN |= {"versions": {"python": "3.11.7"}, "processor": "x86_64 AVX2", "seconds": 75.0}
RUN |= {"date": "2026-01-02T03:04:05+00:00"}


def claim(name: str = "t.one", **fields) -> Claim:
    """A claim about one value, x."""
    words = {"kind": "figure", "claim": "That $|x| < 2$.", "expected": "held", "where": "Figure 1"}
    rules = {"holds": Rule("x.high < 2"), "refuted": Rule("x.low > 2")}
    return Claim.model_construct(id=name, **{"values": {"x": "what *is* measured"}} | words | rules | fields)


def judgement(name: str = "t.one", verdict: str = "held", reason: str = "", *, fields=None, values=None, **more):
    """A judgement of a claim with these `fields`, of these `values` as JSON has them."""
    declared = claim(name, **{"expected": verdict} | (fields or {}))
    measured = {name: measurements.from_json(value) for name, value in (values or {"x": X}).items()}
    return Judgement(TOY, declared, verdict, reason, measured, **{"rule": "r", "seconds": 0.1} | more)


def ledger(*judgements: Judgement, **run) -> ChapterFindings:
    """The ledger of the toy chapter."""
    return ChapterFindings(TOY, RUN | run, judgements)
