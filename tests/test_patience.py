"""No test judges by a clock: only `patience` reads one, to stop what hangs."""

import ast
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
TESTS = sorted(path for path in HERE.rglob("*.py") if path.name != "patience.py")
CLOCKS = frozenset({"time", "monotonic", "perf_counter", "process_time", "thread_time"})
PROGRAMS = frozenset({"run", "call", "check_call", "check_output"})  # of `subprocess`


def endless(node: ast.AST) -> bool:
    """Whether a loop or a call waits for something, however long that takes."""
    if isinstance(node, ast.While):
        return any(isinstance(inner, ast.Attribute) and inner.attr == "sleep" for inner in ast.walk(node))
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    limited = any(given.arg in ("timeout", None) for given in node.keywords)
    if isinstance(node.func.value, ast.Name) and node.func.value.id == "subprocess":
        return node.func.attr in PROGRAMS and not limited
    return (node.func.attr == "wait" and not (limited or node.args)) or (
        node.func.attr == "communicate" and not limited
    )


def clock_faults(source: str) -> list[str]:
    """Lines that read a clock, wait without an end, or give an end in seconds of their own."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if endless(node):
            faults.append(f"{node.lineno}: waits without an end, which patience.HANGS or patience.wait_until gives it")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "time":
                faults.append(f"{node.lineno}: reads time.{node.func.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            faults += [f"{node.lineno}: imports {name.name}" for name in node.names if name.name in CLOCKS]
        elif isinstance(node, ast.keyword) and node.arg == "timeout" and isinstance(node.value, ast.Constant):
            faults.append(f"{node.value.lineno}: waits {node.value.value} seconds, not patience.HANGS")
    return faults


def test_no_test_reads_a_clock():
    faults = {path.relative_to(HERE).as_posix(): clock_faults(path.read_text(encoding="utf-8")) for path in TESTS}
    assert not {name: found for name, found in faults.items() if found}


@pytest.mark.parametrize(
    "source",
    [
        "import time\nstart = time.monotonic()",
        "from time import perf_counter",
        "run(command, timeout=120)",
        "subprocess.run(command, check=True)",
        "subprocess.check_output(command)",
        "program.communicate(b'words')",
        "threading.Event().wait()",
        "while not site.headers:\n    time.sleep(0.01)",
    ],
)
def test_a_test_that_reads_a_clock_is_noticed(source):
    assert len(clock_faults(source)) == 1


@pytest.mark.parametrize(
    "source", ["subprocess.run(command, timeout=HANGS)", "subprocess.run(command, **limits)", "program.wait(HANGS)"]
)
def test_a_wait_with_an_end_is_no_fault(source):
    assert not clock_faults(source)


def test_properties_meet_the_same_examples_on_every_machine_and_no_deadline():
    chosen = settings.default
    assert (chosen.derandomize, chosen.deadline, chosen.database) == (True, None, None)
    assert HealthCheck.too_slow in chosen.suppress_health_check
