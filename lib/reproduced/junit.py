"""The bars of an audit as JUnit XML, which services of continuous integration show as tests."""

from collections.abc import Sequence
from xml.etree import ElementTree

from leakage.audit.gates import GateResult


def to_junit(results: Sequence[GateResult], *, name: str) -> bytes:
    """The gates as JUnit XML: a test case for each, with the bound as its message."""
    counts = {"tests": len(results), "failures": sum(one.failed for one in results), "errors": 0}
    suite = ElementTree.Element("testsuite", {"name": _printable(name), **{key: f"{n}" for key, n in counts.items()}})
    for one in results:
        case = {"classname": "leakage.audit", "name": f"{one.metric} <= {one.bar:g}"}
        found = ElementTree.SubElement(suite, "testcase", case)
        if one.failed:
            ElementTree.SubElement(found, "failure", {"message": _printable(str(one))})
        else:
            ElementTree.SubElement(found, "system-out").text = _printable(str(one))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """The text without characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
