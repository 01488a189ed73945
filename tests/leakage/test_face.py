"""`import leakage` is fast and offers what its docstring lists."""

import importlib
import re
import subprocess
import sys

import pytest

import leakage
from checking import HANGS


def run_python(code: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANGS).stdout.strip()


def test_importing_the_library_imports_nothing_slow():
    slow = "{'torch', 'numpy', 'scipy', 'sklearn', 'pandas', 'matplotlib', 'jaxtyping'}"
    assert run_python(f"import sys, leakage; print(*{slow} & sys.modules.keys())") == ""


def test_every_public_name_resolves():
    assert all(getattr(leakage, name) is not None for name in leakage.__all__)
    from leakage import audit

    assert audit is importlib.import_module("leakage.audit")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'leakage' has no attribute 'liar'"):
        _ = leakage.liar  # pyright: ignore[reportAttributeAccessIssue]


def test_the_docstring_lists_the_public_names():
    assert sorted(leakage.__all__) == sorted(["audit", *leakage._MODULE_OF])
    listed = re.findall(r"^- (.*?): ", leakage.__doc__, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "\n".join(listed))) == sorted(leakage.__all__)
