"""On the workers of dask is found what is found here, whoever is killed, lies or is of another version."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import psutil
import pytest
import torch

from cluster_machines import Machines
from leakage import checked_files
from leakage.checked_files import Damaged
from leakage.runtime import stream
from miniature import add_chapter, edit, executions, is_a_refusal, make_repository, run
from patience import HANGS, wait_until
from reproduced import command_line
from reproduced.run import audit_errands, errands
from reproduced.run.cluster import Call, Misfit
from reproduced.run.equipment import Needs
from reproduced.run.execute import Outcome

pytestmark = pytest.mark.slow
LEAKAGE = Path(sys.executable).with_name("leakage")
CHAPTERS = ("first", "second", "third")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A repository of three chapters that has no package of its own, committed."""
    root = make_repository(tmp_path_factory.mktemp("book") / "repository", *CHAPTERS)
    shutil.rmtree(root / "lib")
    for name in CHAPTERS:
        add_chapter(root, name)
        edit(root / "book" / f"{name}.md", "\nfrom leakage import numbers", "")
    (root / ".gitignore").write_text("_build\nexecutions.txt\n", "utf-8")
    for arguments in (["init"], ["add", "--all"], ["commit", "--message", "Begin"]):
        subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, timeout=HANGS)
    return root


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The process from which machines are forked."""
    machines = Machines(tmp_path_factory.mktemp("machines"))
    yield machines
    machines.close()


@pytest.fixture
def machines(house):
    """Machines that have noted nothing, and no trap."""
    house.end()
    return house


@pytest.fixture
def root(committed, tmp_path):
    return shutil.copytree(committed, tmp_path / "repository")


def kept(root) -> dict:
    """The replications of each chapter in the order of their seeds, without what clocks say."""
    lines = (root / "book/records/replication.jsonl").read_text("utf-8").splitlines()
    runs = sorted((json.loads(line) | {"seconds": 0, "date": ""} for line in lines), key=lambda run: run["seed_index"])
    return {name: [run for run in runs if run["chapter"] == name] for name in sorted({run["chapter"] for run in runs})}


@pytest.fixture(scope="module")
def expected(committed, house, tmp_path_factory):
    """The replications at two seeds that are made here."""
    root = shutil.copytree(committed, tmp_path_factory.mktemp("here") / "repository")
    house.learn("replicate", "--root", root, "--seeds", 2)
    return kept(root)


def test_a_cluster_finds_what_is_found_here_and_says_how_far_it_is(machines, root, expected):
    address = machines.scheduler()
    machines.workers(address, "sound", "sound")
    status, out, err = machines.leakage("replicate", "--root", root, "--seeds", 2, "--cluster", address)
    assert (status, err) == (0, "")
    assert kept(root) == expected
    assert "(1 of 6 tasks, about 1 min left)" in out
    assert out.splitlines()[-2].endswith("(6 of 6 tasks)")
    assert sorted(machines.notes()) == sorted(f"{c} {one['seed']}" for c, runs in expected.items() for one in runs)
    assert machines.leakage("replicate", "--root", root, "--seeds", 2, "--cluster", address)[0] == 0
    assert len(machines.notes()) == 6


def test_a_worker_that_is_killed_loses_nothing(machines, root, expected):
    address = machines.scheduler()
    machines.workers(address, *["sound"] * 4)
    for name in CHAPTERS:
        machines.trap(name, "worker")
    status, _, err = machines.leakage("replicate", "--root", root, "--seeds", 2, "--cluster", address)
    assert (status, err) == (0, "")
    assert kept(root) == expected
    assert len(machines.notes()) == 6 + 3


def test_without_a_scheduler_what_was_finished_is_kept_and_the_next_run_goes_on(machines, root, expected):
    address = machines.scheduler()
    machines.workers(address, "sound")
    machines.trap("first", "scheduler")  # of each seed the last
    status, _, err = machines.leakage("replicate", "--root", root, "--seeds", 2, "--cluster", address)
    assert (status, err.count("\n"), "the scheduler is gone; what was finished is kept" in err) == (1, 1, True)
    assert {name: len(runs) for name, runs in kept(root).items()} == {"second": 1, "third": 1}
    address = machines.scheduler()
    machines.workers(address, "sound")
    assert machines.leakage("replicate", "--root", root, "--seeds", 2, "--cluster", address)[0] == 0
    assert kept(root) == expected
    assert len(machines.notes()) == 6 + 1


def test_after_a_client_was_killed_the_next_run_goes_on(machines, root, expected):
    address = machines.scheduler()
    machines.workers(address, "sound")
    machines.trap("first", "client")
    replicate = ("replicate", "--root", root, "--seeds", 2, "--cluster", address)
    assert machines.leakage(*replicate)[0] == -9
    finished = sum(map(len, kept(root).values()))
    assert finished <= 2
    assert machines.leakage(*replicate)[0] == 0
    assert kept(root) == expected
    assert len(machines.notes()) <= 6 + 3 - finished


OTHERS = {  # kinds of workers, and why they are refused
    "torch": "other than here are version of torch",
    "library": "other than here are leakage/metrics/roc.py",
    "mute": "it cannot say what it has (ZeroDivisionError: division by zero)",
}


def test_workers_of_other_versions_are_refused_by_name_and_others_go_on(machines, root):
    address = machines.scheduler()
    machines.workers(address, *OTHERS)
    build = ("build", "--no-render", "--root", root, "--cluster", address)
    status, out, err = machines.leakage(*build)
    assert (status, machines.notes()) == (2, [])
    assert err == "leakage: none of the workers fits; what is other is said above.\n"
    lines = [line.partition(" is refused: ") for line in out.splitlines()]
    assert all(line[0].startswith("  worker tcp://127.0.0.1:") for line in lines)
    assert sorted(line[2] for line in lines) == sorted(OTHERS.values())
    assert not (root / "_build/executed").exists()
    machines.workers(address, "sound")
    status, out, err = machines.leakage(*build)
    assert (status, [out.count(why) for why in OTHERS.values()], err) == (0, [1, 1, 1], "")


def test_a_full_disk_on_a_worker_costs_one_line_and_the_task(machines, root):
    (root / "book/records/second.txt").write_text("x" * 20_000)
    address = machines.scheduler()
    machines.workers(address, "small")
    status, _, err = machines.leakage("build", "--no-render", "--root", root, "--cluster", address)
    assert (status, sorted(machines.notes())) == (1, ["first 0", "third 0"])
    assert "✗ second: failed before its first cell after 0.0 s: not executed: OSError: [Errno 27]" in err
    assert err.count("\n") == 1
    machines.end()
    address = machines.scheduler()
    machines.workers(address, "sound")
    assert machines.leakage("build", "--no-render", "--root", root, "--cluster", address)[0] == 0
    assert machines.notes() == ["second 0"]


def test_an_altered_result_is_not_believed_and_done_again(machines, root, expected):
    address = machines.scheduler()
    machines.workers(address, "sound")
    replicate = ("replicate", "--root", root, "--seeds", 2, "--cluster", address)
    status, out, err = machines.leakage(*replicate, kind="altering")
    assert (status, err) == (0, "")
    assert out.count("its result is not believed, for its checksum is another; it is done again") == 1
    assert kept(root) == expected
    assert len(machines.notes()) == 6 + 1


def test_workers_of_this_machine_listen_to_it_alone_and_end_with_whoever_started_them(machines, root):
    gate = "while not os.path.exists('gate'): time.sleep(0.05)"
    add_chapter(root, "first", gate)
    edit(root / "book" / "first.md", "\nfrom leakage import numbers", "")
    command = [LEAKAGE, "build", "first", "--no-render", "--root", root, "--workers", "1"]
    runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: executions(root) == ["first"])
    family = psutil.Process(runner.pid).children(recursive=True)
    assert len(family) >= 3, "a worker, a chapter's process and its kernel"
    sockets = [one for each in (psutil.Process(runner.pid), *family) for one in each.net_connections("inet")]
    assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    runner.kill()
    runner.wait(HANGS)
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))
    assert not (root / "_build/executed/ci/first.ipynb").exists()
    assert machines.leakage("build", "first", "--no-render", "--root", root)[::2] == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2", "--cluster", "tcp://127.0.0.1:1"], "exclude each other"),
        (["--workers", "2", "--jobs", "1"], "exclude each other"),
        (["--cluster", "scheduler"], "is tcp://HOST:PORT or tls://HOST:PORT; got 'scheduler'"),
        (["--workers", "0"], "--workers"),
        (["--cluster", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1 gives no workers"),
    ],
)
@pytest.mark.parametrize("command", ["build", "replicate"])
def test_a_wrong_place_gets_one_line_and_changes_nothing(root, capsys, monkeypatch, command, options, message):
    monkeypatch.setattr("reproduced.run.cluster._ANSWER_SECONDS", 0.1)
    status, out, err = run(root, [command, *options], capsys)
    assert is_a_refusal(status, out, err)
    assert message in err
    assert not (root / "_build").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2", "--cluster", "tcp://127.0.0.1:1"], "exclude each other"),
        (["--cluster", "scheduler"], "is tcp://HOST:PORT or tls://HOST:PORT; got 'scheduler'"),
        (["--cluster", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1 gives no workers"),
    ],
)
def test_an_audit_at_a_wrong_place_gets_one_line_and_writes_nothing(
    scores, tmp_path, capsys, monkeypatch, options, message
):
    monkeypatch.setattr("reproduced.run.cluster._ANSWER_SECONDS", 0.1)
    status = command_line.main(["audit", str(scores), "--json", str(tmp_path / "audit.json"), *options])
    out, err = capsys.readouterr()
    assert is_a_refusal(status, out, err)
    assert message in err
    assert not [*tmp_path.iterdir()]


def test_the_environment_names_a_cluster_as_the_option_does(root, capsys, monkeypatch):
    monkeypatch.setenv("LEAKAGE_CLUSTER", "nowhere")
    assert "got 'nowhere'" in run(root, ["build"], capsys)[2]
    assert "exclude each other" in run(root, ["build", "--workers", "2"], capsys)[2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": "other"}, "it is another task's"),
        ({"notebook": "{}"}, "it is no executed notebook"),
        ({"notebook": None}, "it is no executed notebook"),
        ({"outcome": {"chapter": "first"}}, "it is no executed notebook"),
        ({"unlike": ["version of torch"]}, "version of torch"),
    ],
)
def test_what_comes_back_is_believed_only_as_an_executed_notebook_of_its_task(changed, message):
    call, outcome = Call("key", "first", ()), Outcome("first", 1.0, 2, 2, durations=(0.5, 0.5))
    found = {"key": "key", "worker": "tcp://127.0.0.1:1", "unlike": [], "log": "words"}
    found |= {"notebook": nbformat.writes(nbformat.v4.new_notebook()), "outcome": asdict(outcome)}
    notebook, *rest = errands.believed(call, checked_files.pack(found))
    assert (notebook.cells, rest) == ([], [outcome, "words"])
    with pytest.raises(Damaged, match=message):
        errands.believed(call, checked_files.pack(found | changed))


# ── audits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """A folder of losses of twelve models."""
    folder = tmp_path_factory.mktemp("audited") / "scores"
    folder.mkdir()
    member = torch.rand(12, 400, generator=stream(0, "member")) < 0.5
    losses = -torch.rand(12, 400, generator=stream(0, "losses"), dtype=torch.float64).log()
    np.save(folder / "losses.npy", (losses * torch.where(member, 0.3, 1.0)).numpy())
    np.save(folder / "member.npy", member.numpy())
    return folder


@pytest.fixture(scope="module")
def here(house, scores):
    """What the audit of these losses finds on this machine."""
    found = scores.with_name("here.json")
    house.learn("audit", scores, "--json", found)
    return found


@pytest.mark.parametrize("kind", ["sound", "altering"])
def test_an_audit_finds_on_workers_what_it_finds_here(machines, scores, here, tmp_path, kind):
    there = tmp_path / "there.json"
    address = machines.scheduler()
    machines.workers(address, "sound", "library", "sound")
    status, _, err = machines.leakage("audit", scores, "--json", there, "--cluster", address, kind=kind)
    assert (status, there.read_bytes()) == (0, here.read_bytes())
    told = sorted(line.split(":")[-1].strip() for line in err.splitlines())
    doubted = ["its result is not believed, for its checksum is another; it is done again"] * (kind == "altering")
    assert [line.rpartition(" are ")[2] for line in told] == sorted(["leakage/metrics/roc.py", *doubted])


def test_a_worker_whose_file_is_another_is_refused_by_its_name(scores, monkeypatch):
    monkeypatch.setattr(audit_errands, "this_worker", lambda: SimpleNamespace(address="tcp://127.0.0.1:1"))
    call = Call(
        "key", "without 1 models", (scores, "digest", (0,), ("auc",), audit_errands.equipment(Needs((), (), "cpu")))
    )
    with pytest.raises(Misfit, match="the file scores"):
        audit_errands.believed(call, audit_errands.measured(*call.arguments))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"part": [1]}, "it is another part's"),
        ({"means": {"loss": torch.zeros(2, dtype=torch.float64)}}, "it holds no means"),
        ({"means": {"loss": torch.zeros(1)}}, "it holds no means"),
        ({"means": {"loss": 0.5}}, "it holds no means"),
        ({"means": None}, "it holds no means"),
        ({"unlike": ["version of torch"]}, "version of torch"),
    ],
)
def test_what_comes_back_is_believed_only_as_means_of_its_part(changed, message):
    call = Call("key", "without 1 models", (Path("scores"), "digest", (0,), ("auc",), {}))
    found = {"worker": "tcp://127.0.0.1:1", "part": [0], "unlike": [], "means": {"loss": torch.ones(1).double()}}
    assert audit_errands.believed(call, checked_files.pack(found)) == {"loss": 1}
    with pytest.raises(Damaged, match=message):
        audit_errands.believed(call, checked_files.pack(found | changed))
