"""`import leakage` is fast and offers what its docstring lists; every package has an example that runs."""

import contextlib
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import leakage
from patience import HANGS

LIBRARY = Path(leakage.__file__).parent
PACKAGES = sorted(".".join(path.parent.relative_to(LIBRARY.parent).parts) for path in LIBRARY.rglob("__init__.py"))
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*")


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


@pytest.mark.parametrize("package", PACKAGES)
def test_the_example_of_a_package_prints_what_its_page_shows(package):
    examples = EXAMPLE.findall(importlib.import_module(package).__doc__ or "")
    assert len(examples) == 1, f"the docstring of {package} needs a ```python block, and its output in a ```text block"
    code, shown = examples[0]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), torch.random.fork_rng(devices=[]):
        exec(compile(code, package, "exec"), {"__name__": package})
    printed = output.getvalue()
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    # Other processors round otherwise, which may change the last digit that is shown.
    assert [*map(float, NUMBER.findall(printed))] == pytest.approx([*map(float, NUMBER.findall(shown))], abs=0.011)
