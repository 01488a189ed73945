"""What the project asks for, locks, says of itself and links to agree with each other."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import leakage
from leakage.data import datasets
from patience import HANGS
from reproduced.claims import declarations

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def requirements() -> list[Requirement]:
    """All that the project asks for, extras included, without itself."""
    extras = PROJECT["optional-dependencies"].values()
    found = [Requirement(line) for lines in (PROJECT["dependencies"], *extras) for line in lines]
    return [requirement for requirement in found if requirement.name != PROJECT["name"]]


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    names = [canonicalize_name(requirement.name) for requirement in found]
    assert len(set(names)) == len(names), "one version of a package, whatever the Python: results must not depend on it"
    return dict(zip(names, found, strict=True))


def test_the_lock_pins_every_dependency_to_a_version_it_allows():
    locked = pins()
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        (pin,) = locked[name].specifier
        assert pin.operator == "==", name
        assert requirement.specifier.contains(pin.version), f"{requirement} against the lock's {pin.version}"


def test_the_lock_suits_machines_with_and_without_a_gpu():
    for name, pin in pins().items():
        assert "+" not in str(pin.specifier), f"{pin} can be installed only where it was made"
        if name.startswith(("nvidia-", "cuda-", "triton")):
            assert "sys_platform == 'linux'" in str(pin.marker).replace('"', "'"), f"{pin} is for Linux alone"


@pytest.mark.parametrize("python", ["3.11.2", "3.12.0", "3.13.0"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_lock_serves_every_python_and_system_that_is_named(python, system):
    here = {"python_full_version": python, "python_version": python.rpartition(".")[0], "sys_platform": system}
    locked = pins()
    for requirement in requirements():
        marker = locked[canonicalize_name(requirement.name)].marker
        assert marker is None or marker.evaluate({**here, "os_name": "posix"}), requirement


def test_the_package_is_built_by_one_version_of_its_backend():
    (backend,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    assert str(backend.specifier).startswith("=="), "neither the lock nor its constraints reach into the build"


def test_every_python_that_is_named_runs_the_tests():
    runs = load(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    prefix = "Programming Language :: Python :: "
    named = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(prefix)]
    assert [run["python"] for run in runs] == named
    assert "You need Python {} or {} and `make`".format(", ".join(named[:-1]), named[-1]) in readme()
    assert all(Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python) for python in named)
    # The versions of PyPI's build for Linux read differently in its metadata and in its module.
    assert "" in [run["torch-index"] for run in runs], "one run takes PyTorch as pip does where no index is named"


@pytest.mark.parametrize("path", ["Makefile", "book/run_it.md", ".github/actions/set-up/action.yml"])
def test_the_index_of_pytorch_serves_no_other_package(path):
    assert "extra" not in re.findall(r"\w+(?=.index.url)", (ROOT / path).read_text(encoding="utf-8").lower())


def test_the_site_carries_the_licence_of_mathjax():
    # Sphinx copies the folder, and the pipeline copies MathJax, whose package has no licence text, into the same.
    text = (ROOT / "book" / "_static" / "mathjax" / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]


def test_the_environment_is_that_of_the_project():
    content = load(ROOT / "environment.yml")
    *conda, pip = content["dependencies"]
    assert conda == ["python=3.11", "pip"]
    assert [line for line in pip["pip"] if "extra-index-url" not in line] == ["-c requirements.txt", "-e .[book]"]


def test_jupyter_book_stays_below_the_version_that_reads_no_config():
    (book,) = [requirement for requirement in requirements() if requirement.name == "jupyter-book"]
    assert not book.specifier.contains("2.0.0")


def test_the_citation_keeps_its_schema():
    arguments = ["--builtin-schema", "vendor.citation-file-format", str(ROOT / "CITATION.cff")]
    result = CliRunner().invoke(check_jsonschema.main, arguments)
    assert result.exit_code == 0, result.output


def test_make_clean_leaves_nothing_generated_in_the_root_but_the_virtual_environment():
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # not a make in a make
    command = ["make", "--no-print-directory", "-n", "clean"]
    shown = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True, timeout=HANGS)
    ignored = (line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())
    anywhere = {"__pycache__", ".ipynb_checkpoints"}
    generated = {name for name in ignored if re.fullmatch(r"[\w.]+", name)} - anywhere
    assert set(shown.stdout.split()[2:]) == generated - {".venv"}


def test_the_package_alone_says_its_version():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "leakage.__version__"}}
    assert load(ROOT / "CITATION.cff")["version"] == leakage.__version__
    assert "version" not in load(ROOT / "_config.yml")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        rf"release will be {leakage.__version__}\.|^## \[{leakage.__version__}\] - ", changes, re.MULTILINE
    )


def test_type_checkers_of_others_read_the_annotations():
    assert PYPROJECT["tool"]["setuptools"]["package-data"]["leakage"] == ["py.typed"]
    assert (ROOT / "lib" / "leakage" / "py.typed").is_file()


def test_the_development_container_has_the_packages_of_continuous_integration():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    installed = container["onCreateCommand"].partition("--no-install-recommends ")[2].split()
    asked = re.findall(r"packages\+=\(([^)]*)\)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert set(installed) == {name for names in asked for name in names.split()}


def test_licences_agree():
    citation = load(ROOT / "CITATION.cff")
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License\n")
    assert "Attribution 4.0 International" in (ROOT / "LICENSE-PROSE").read_text(encoding="utf-8")


def test_the_page_on_running_lists_the_data_sets_of_the_registry():
    readers = {name: [] for name in datasets.DATASETS}
    for path in sorted((ROOT / "book" / "claims").glob("*.yml")):
        for name in declarations.load(path).data:
            readers[name].append(f"`{path.stem}`")
    page = (ROOT / "book" / "run_it.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| .* MB \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert rows == [
        (dataset.name, dataset.title, dataset.licence, ", ".join(readers[dataset.name]))
        for dataset in datasets.DATASETS.values()
    ]


def test_the_readme_gives_the_two_commands():
    assert "## Two commands\n\n```sh\nmake book\nmake test\n```\n" in readme()


def test_every_file_the_readme_links_to_exists():
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        for target in re.findall(r"\]\(([^)#\s]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            assert target.startswith("https://") or (ROOT / target).exists(), f"{name}: {target}"
