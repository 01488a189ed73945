"""The repository is whole: lock, versions, licences, contents and bibliography agree; workflows may only read."""

import ast
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pybtex.database import parse_file

import leakage
from checking import HANGS
from reproduced import runtime
from reproduced.pages.findings import read_chapters
from reproduced.run.book import open_book

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
PAGES = sorted(path for path in BOOK.glob("*.md") if path.name != "README.md")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
# Whoever publishes may write to the pages or prove who they are; nobody may do anything else.
MAY_WRITE = {
    ("book.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("book.yml", "notebooks"): {"contents": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
}
MACHINE_PATH = re.compile(r"(?<![\w./~}])/(?:work|root|tmp|home|Users)(?:/|\b)")
TEXTS = {"", ".bib", ".cff", ".css", ".json", ".md", ".py", ".svg", ".toml", ".yaml", ".yml"}


# ── packages, version and licences ────────────────────────────────────────────────────────────────────────────────────


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


def test_the_citation_keeps_its_schema():
    arguments = ["--builtin-schema", "vendor.citation-file-format", str(ROOT / "CITATION.cff")]
    result = CliRunner().invoke(check_jsonschema.main, arguments)
    assert result.exit_code == 0, result.output


def test_the_package_alone_says_its_version():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "leakage.__version__"}}
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == leakage.__version__
    assert "version" not in load(ROOT / "_config.yml")
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert f"## {leakage.__version__} - {citation['date-released']}" in lines


def test_licences_agree():
    citation = load(ROOT / "CITATION.cff")
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License\n")
    assert "Attribution 4.0 International" in (ROOT / "LICENSE-PROSE").read_text(encoding="utf-8")


def test_every_file_the_readmes_link_to_exists():
    for path in (*ROOT.glob("*.md"), BOOK / "README.md", ROOT / "tests" / "README.md"):
        for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (path.parent / target).exists(), f"{path}: {target}"


def test_the_table_of_promises_names_tests_that_exist():
    table = re.findall(r"^\| .* \| (.*) \|$", (ROOT / "tests" / "README.md").read_text("utf-8"), re.MULTILINE)
    quoted = (name for cell in table for name in re.findall(r"`([^`]+)`", cell))
    names = {name for name in quoted if not name.startswith(("make ", ".ci/"))}
    tests = [path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    known = {re.sub(r"test_(\w+)\.py$", r"\1", test) for test in tests}
    assert names
    assert not [name for name in names if not any(fnmatch(one, name) for one in known)]


# ── the book's contents and bibliography ──────────────────────────────────────────────────────────────────────────────


def test_the_contents_list_every_page_once_and_every_claims_file_has_a_page():
    contents = load(ROOT / "_toc.yml")
    listed = [contents["root"], *(page["file"] for part in contents["parts"] for page in part["chapters"])]
    assert sorted(listed) == [path.stem for path in PAGES]
    assert {path.stem for path in (BOOK / "claims").glob("*.yml")} <= {*listed}


def test_no_page_and_no_setting_invents_the_address_of_the_repository():
    settings = [ROOT / name for name in ("_toc.yml", "_config.yml", "pyproject.toml", "CITATION.cff")]
    files = [*PAGES, *ROOT.glob("*.md"), BOOK / "chapters.yml", *settings]
    assert "url" not in CONFIG["repository"]
    assert not [file.name for file in files if re.search(r"github\.com/[\w-]+/book\b", file.read_text("utf-8"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_files_that_a_page_points_to_exist(path):
    text = path.read_text(encoding="utf-8")
    assert not [name for name in re.findall(r"\{source\}`([^`]+)`", text) if not (ROOT / name).exists()]
    for name in re.findall(r":file: (\S+)", text):
        assert (BOOK / name).is_file()


def test_the_five_chapters_are_described_and_their_papers_are_in_the_bibliography():
    book = open_book(ROOT)
    chapters = [chapter for chapter in read_chapters(book).values() if chapter.question]
    entries = parse_file(BOOK / "references.bib").entries
    assert [chapter.number for chapter in chapters] == ["1", "2", "3", "4", "5"]
    for chapter in chapters:
        declared = book.declarations(chapter.name)
        assert (chapter.title, chapter.key) == (declared.title, declared.paper)
        assert "`" not in chapter.title, "it stands in the line that opens a fence"
        assert chapter.question.endswith("?")
        assert not re.search(r"[0-9][.,]?[0-9]", chapter.answer), "another run would measure another number"
        entry = entries[chapter.key]
        assert entry.fields["keywords"] == "chapter"
        assert entry.fields["title"] == chapter.paper
        assert entry.fields["year"] == chapter.year
        surnames = [" ".join(person.last_names) for person in entry.persons["author"]]
        assert [name.split()[-1] for name in chapter.authors.split(", ")] == surnames


def test_every_work_that_a_page_cites_is_in_the_bibliography():
    entries = parse_file(BOOK / "references.bib").entries
    cited = {
        key.strip()
        for path in PAGES
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert cited <= set(entries)


@pytest.mark.parametrize("path", sorted((BOOK / "_static").glob("*.svg")), ids=lambda path: path.stem)
def test_every_drawing_has_a_title(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(r'role="(?:img|group)".*<title id="[^"]+">[^<]{20,}</title>', text, re.DOTALL)


# ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", ACTIONS),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("github-issue-config", [path for path in FORMS if path.name == "config.yml"]),
        ("github-issue-forms", [path for path in FORMS if path.name != "config.yml"]),
    ],
)
def test_files_keep_their_schema(schema, paths):
    assert paths
    arguments = ["--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    result = CliRunner().invoke(check_jsonschema.main, arguments)
    assert result.exit_code == 0, result.output


def test_the_audit_of_the_workflows_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [zizmor, "--offline", "--no-progress", "--persona", "auditor", ".github"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=HANGS)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_names_the_chapters_and_profiles_there_are(path):
    fields = {field.get("id"): field["attributes"] for field in load(path).get("body", ())}
    declared = (ROOT / "book" / "claims").glob("*.yml")
    asked = {name: sorted(fields[name]["options"]) for name in ("chapter", "profile") if name in fields}
    there = {"chapter": sorted(path.stem for path in declared), "profile": sorted(runtime.PROFILES)}
    assert asked == {name: there[name] for name in asked}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends(path):
    content = load(path)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        assert job.get("permissions", {}) == MAY_WRITE.get((path.name, name), {}), name
        assert "uses" in job or job["timeout-minutes"] <= 60, name  # a workflow that is called has its own limits


@pytest.mark.parametrize("path", WORKFLOWS + ACTIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_pinned_action_names_its_version(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        assert "uses: ./" in line or "uses:" not in line or re.search(r"# v\d+\.\d+\.\d+$", line), f"no version: {line}"


def test_continuous_integration_runs_the_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    pages = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md", "book/run_it.md"))
    for path in (*WORKFLOWS, *ACTIONS, ROOT / ".ci" / "run", *pages):
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:run: |^\s*|`|stage \w+ \d+ )make ([a-z][\w-]*)", text, re.MULTILINE))
        assert named <= targets, f"{path.name} uses {sorted(named - targets)}"


# ── the code ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_members_and_outsiders_are_given_by_name():
    """Two like arguments that are easily swapped; beside `member_losses`, `member` is a mask."""
    for path in sorted((ROOT / "lib").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                named = [argument.arg for argument in node.args.kwonlyargs]
                placed = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                placed = [name for name in placed if name != "member" or "member_losses" not in named]
                kinds = {name[:6] for name in placed + named if name.startswith(("member", "outsider"))}
                assert len(kinds) < 2 or not kinds & {name[:6] for name in placed}, f"{path}: {node.name}"


def test_no_file_names_a_folder_of_one_machine():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=HANGS).stdout
    paths = [ROOT / name for name in tracked.splitlines() if not name.startswith("tests/")]
    found = [
        f"{path}: {line}"
        for path in paths
        if path.suffix in TEXTS and path.is_file()
        for line in path.read_text("utf-8").splitlines()
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)
