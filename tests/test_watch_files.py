"""Tests of what `watch` leaves behind: the files are as they were, or it says which are not; and no port is open."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from d2lpar.diagnosis import kept_files, scripts
from d2lpar.diagnosis.compare import Diagnosis, about_files
from d2lpar.diagnosis.judging import Ran
from d2lpar.diagnosis.kept_files import KEEPS, KeptFiles, keep, locked, watched_folders
from d2lpar.diagnosis.put_back import MARK, OWNER, RUN, put_back
from d2lpar.diagnosis.scripts import NotRun, Run
from watch import operations

OPERATIONS = str(Path(operations.__file__))
linux = pytest.mark.skipif(sys.platform != "linux", reason="uses what only Linux has")


def start(*words: str, cwd: Path, **variables: str) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen([sys.executable, "-W", "ignore", *words], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def done(process: subprocess.Popen, timeout_s: float = 200) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def watched(*words: str, cwd: Path, **variables: str) -> dict[str, Any]:
    """What `watch --json` says."""
    _, out, err = done(start("-m", "d2lpar", "watch", "--json", *words, cwd=cwd, **variables))
    assert out, err
    return json.loads(out) | {"stderr": err}


def content(path: Path) -> Any:
    """Of a file, or the start of a large one; and where a link leads."""
    if path.is_symlink():
        return os.readlink(path)
    with open(path, "rb") as file:
        return file.read(100_000), path.stat().st_size


def state(folder: Path) -> dict[str, tuple]:
    """Everything about a folder and what is in it that a script may notice, except times of reading."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        now, is_folder = path.lstat(), path.is_dir() and not path.is_symlink()
        links = [str(other) for other in sorted(folder.rglob("*")) if other.lstat().st_ino == now.st_ino] if now.st_nlink > 1 and not is_folder else []
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)} if hasattr(os, "listxattr") and not path.is_symlink() else {}
        found[str(path.relative_to(folder))] = (stat.filemode(now.st_mode), now.st_mtime_ns, is_folder or content(path), links, xattrs)
    return found


# what cannot be put back, or may be somebody else's, is told
NAMED = {"hidden new": ("new", "by_hidden"), "hidden large": ("not put back", "by_hidden"),
         "hidden large move": ("new", "e"), "hidden source": ("not put back", "by_hidden.py")}
UNKNOWN = {"child by spawn/spawned", "from file/f", "hidden delete/by_hidden", "hidden/by_hidden", "in Cpp/cpp.pt"}
OF_TORCH = [name for name, (_, code) in operations.OPERATIONS.items() if re.search(r"\b(torch|np|script|multiprocessing)\b", code)]


def compare(top: Path, before: dict[str, dict]) -> dict[str, set[str]]:
    """Each operation's folder is as it was, except for what is named; returns the files that differ."""
    after = {name: state(top / name) for name in before}
    differ = {name: {path for path in was.keys() | after[name].keys() if was.get(path) != after[name].get(path)}
              for name, was in before.items() if was != after[name]}
    assert differ.keys() == NAMED.keys(), {name: paths for name, paths in differ.items() if name not in NAMED}
    assert all(paths <= {".", NAMED[name][1], f"{NAMED[name][1]}/by_hidden"} for name, paths in differ.items()), differ
    assert {path.name for path in top.iterdir()} == before.keys()  # no copy is left
    return differ


def look_at_report(files: dict[str, list[str]], left_out: Sequence[str] = ()) -> None:
    told = {(kind, path) for kind, paths in files.items() for path in paths if not kind.startswith("as it")}
    wanted = {(kind, f"{name}/{file}") for name, (kind, file) in NAMED.items()} | {
        ("changed by an unknown program, and put back", file) for file in UNKNOWN if file.split("/")[0] not in left_out}
    assert told == wanted
    aside, = files["as it had changed them"]
    assert any(path.read_bytes() == b"changed\n" for path in Path(aside).rglob("by_hidden"))
    shutil.rmtree(aside)


@linux
@pytest.mark.weekly
def test_whatever_a_script_does_to_a_file_is_put_back_or_named(tmp_path: Path):
    operations.make(tmp_path)
    before = {name: state(tmp_path / name) for name in operations.OPERATIONS}
    said = watched(OPERATIONS, str(tmp_path), cwd=tmp_path)
    assert said["ok"] and not said["findings"] and not said["stderr"], said
    compare(tmp_path, before)
    look_at_report(said["files"])


@linux
@pytest.mark.weekly
def test_whatever_a_script_does_to_a_file_is_put_back_if_watch_is_killed(tmp_path: Path):
    top, temporary = tmp_path / "top", tmp_path / "temporary"
    top.mkdir(), temporary.mkdir()
    operations.make(top)
    before = {name: state(top / name) for name in operations.OPERATIONS}
    watch = start("-m", "d2lpar", "watch", OPERATIONS, str(top), cwd=top, TMPDIR=str(temporary))
    wait_until(lambda: (top / "hidden large move" / "e").exists())
    watch.kill()
    done(watch)
    wait_until(lambda: not list(temporary.glob(f"{RUN}*")))
    compare(top, before)


def wait_until(is_so: Callable[[], Any], timeout_s: float = 90) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@linux
def test_whatever_python_does_to_a_file_is_put_back_or_named(tmp_path: Path):
    top, run = tmp_path / "top", tmp_path / f"{RUN}test"
    top.mkdir(), run.mkdir()
    operations.make(top)
    before = {name: state(top / name) for name in operations.OPERATIONS}
    names = [name for name in before if name not in OF_TORCH]
    keep(run, [str(top)])
    code = (f"import sys; sys.path[:0] = {[str(Path(OPERATIONS).parent), str(Path(__file__).parents[1])]!r}; import operations; "
            f"from d2lpar.diagnosis.kept_files import KeptFiles; KeptFiles(sys.argv[1]).start(); "
            f"print(*operations.change(sys.argv[2], sys.argv[3:]))")
    child = subprocess.run([sys.executable, "-c", code, str(run), str(top), *names], cwd=top, capture_output=True, text=True, timeout=60)
    assert (child.returncode, child.stdout.strip(), child.stderr) == (0, "", "")
    assert len(names) > 70 and sum(state(top / name) != before[name] for name in names) > len(names) - 5
    files = {kind: [path.replace(f"{top}/", "") for path in paths] for kind, paths in put_back(str(run)).items()}
    compare(top, before)
    look_at_report(files, OF_TORCH)
    assert put_back(str(run)) == {}  # the reaper may come later


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that watches `top`."""
    (tmp_path / "top").mkdir()
    folder = tmp_path / f"{RUN}test"
    folder.mkdir()
    return folder


def test_a_folder_that_others_use_too_is_left_alone_except_for_what_ranks_name(run: Path, monkeypatch: pytest.MonkeyPatch):
    top = run.parent / "top"
    (top / "below").mkdir()
    for name in ("own", "other", "below/f"):
        (top / name).write_text("original")
    monkeypatch.setenv("HOME", str(top))
    keep(run, [str(top)])
    for name in ("own", "other", "new of others", "new own", "below/f"):
        (top / name).write_text("changed")
    (run / "1.names").write_text("".join(json.dumps([str(top / name), name]) + "\n" for name in ("own", "new own")))
    assert put_back(str(run)) == {}
    assert {path.name: path.read_text() for path in top.iterdir() if path.is_file()} == {
        "own": "original", "other": "changed", "new of others": "changed"} and (top / "below" / "f").read_text() == "changed"


@linux
def test_a_file_that_a_different_program_is_writing_is_left_to_it(run: Path):
    file = run.parent / "top" / "log"
    file.write_text("original")
    keep(run, [str(file.parent)])
    with open(file, "a") as log:
        log.write("more")
        log.flush()
        assert put_back(str(run)) == {"not put back": [str(file)]} and file.read_text() == "originalmore"


def test_environments_and_repositories_are_not_looked_at(run: Path):
    top = run.parent / "top"
    for folder in (".git", "venv/lib", "lib/site-packages", "node_modules", "src"):
        (top / folder).mkdir(parents=True)
        (top / folder / "f").write_text("original")
    (top / "venv" / "pyvenv.cfg").touch()
    keep(run, [str(top)])
    known = json.loads((run / "files.json").read_text())
    assert {path for path in known["found"] if path.endswith("/f")} == {str(top / "src" / "f")} == set(known["packed"])


def test_what_a_killed_watch_has_left_is_named(run: Path):
    copy = run.parent / "top" / f"{MARK}{RUN}killed"
    copy.mkdir()
    keep(run, [str(copy.parent)])
    assert put_back(str(run)) == {"left by a killed watch": [str(copy)]} and copy.exists()


def test_the_copy_of_what_cannot_be_written_is_left_and_named(run: Path, monkeypatch: pytest.MonkeyPatch):
    file = run.parent / "top" / "f"
    file.write_text("original")
    keep(run, [str(file.parent)])
    file.write_text("changed")
    (run / "1.names").write_text(json.dumps([str(file), "f"]))

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail), patch.setattr("shutil.copy2", fail)
        files = put_back(str(run))
    copy, = map(Path, files["copies of what was not put back"])
    assert files["not put back"] == [str(file)] and copy.read_text() == "original" and copy.parent == file.parent


def test_files_in_a_folder_that_cannot_be_written_to_are_put_back_in_place():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # everybody can reach it
        os.chmod(name, 0o777)
        top, run = Path(name, "top"), Path(name, f"{RUN}test")
        codecs.lookup("ascii")  # it cannot be loaded in there if Python is in a folder of root's
        child = os.fork()
        if not child:  # no permission stops root
            try:
                if os.geteuid() == 0:
                    os.setgid(65534), os.setuid(65534)
                work_in_a_folder_that_cannot_be_written_to(top, run)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        code = os.waitpid(child, 0)[1]
        top.chmod(0o755)
        assert code == 0 and {path.name for path in Path(name).iterdir()} == {top.name, run.name}  # no copy is left


def work_in_a_folder_that_cannot_be_written_to(top: Path, run: Path) -> None:
    top.mkdir(), run.mkdir()
    for name in ("model.pt", "same.pt"):
        (top / name).write_text("original")
    top.chmod(0o555)
    before = state(top)
    keep(run, [str(top)])
    files = KeptFiles(run)
    files.is_on = True
    for name in ("model.pt", "same.pt"):
        files.will_save(str(top / name))
    (top / "model.pt").write_text("changed")
    assert put_back(str(run)) == {} and state(top) == before


@linux
@pytest.mark.parametrize("content", ["original", "changed"])
def test_on_a_full_disk_no_part_of_a_copy_is_left(run: Path, monkeypatch: pytest.MonkeyPatch, content: str):
    file, temporary = run.parent / "top" / "f", run.parent / "temporary"
    file.write_text("original")
    before = file.stat().st_mtime_ns
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    keep(run, [str(file.parent)])
    file.write_text(content)
    os.utime(file, ns=(before, before))
    (run / "1.names").write_text(json.dumps([str(file), "f"]))
    make = tempfile.mkstemp

    def make_in_vain(dir: str, **kwargs: Any) -> tuple[int, str]:
        number, name = make(dir=dir, **kwargs)
        if dir == str(file.parent):
            os.dup2(full, number)
        return number, name

    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr("tempfile.mkstemp", make_in_vain)
    assert put_back(str(run)) == {} and file.read_text() == "original"
    os.close(full)
    assert list(file.parent.iterdir()) == [file] and not list(temporary.iterdir())


def test_a_small_disk_is_not_filled_with_copies(run: Path, monkeypatch: pytest.MonkeyPatch):
    for name, size in (("small", 10), ("large", 30)):
        (run.parent / "top" / name).write_bytes(b"x" * size)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=50))
    keep(run, [str(run.parent / "top")])
    assert (run / "files.pack").stat().st_size == 10


def test_what_only_root_can_put_back_is_named_and_the_rest_is_put_back(run: Path, monkeypatch: pytest.MonkeyPatch):
    file = run.parent / "top" / "f"
    file.write_text("original")
    before = state(file.parent)
    keep(run, [str(file.parent)])
    known = json.loads((run / "files.json").read_text())
    known["found"][str(file)][OWNER] += 1
    (run / "files.json").write_text(json.dumps(known))
    file.write_text("changed")
    file.chmod(0o600)
    (run / "1.names").write_text(json.dumps([str(file), "f"]))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("os.chown", refuse)
    assert put_back(str(run)) == {"put back, except for owner, mode or time": [str(file)]} and state(file.parent) == before


def test_an_error_of_ours_is_no_fault_of_the_script():
    said = f"{KEEPS} /data/f before the script changes it, and could not: no space left"
    ends = [[("end", {"error": f"Traceback\nOSError: {said}"})], []]
    with pytest.raises(NotRun, match=f"^{said}$"):
        scripts._judge(Ran(2, ends, crashed=True), ["train.py"])


def test_only_a_limited_number_of_bytes_is_kept_the_data_last(run: Path, monkeypatch: pytest.MonkeyPatch):
    top = run.parent / "top"
    (top / "data").mkdir()
    for i in range(5):
        (top / "data" / str(i)).write_bytes(b"x" * (i + 1))
    (top / "net.pt").write_bytes(b"x" * 50)
    (top / "large.pt").write_bytes(b"x" * 100)
    monkeypatch.setattr(kept_files, "KEPT_BYTES", 53)
    monkeypatch.setattr(kept_files, "MANY", 4)
    keep(run, [str(top)])
    assert [os.path.basename(path) for path in json.loads((run / "files.json").read_text())["packed"]] == ["net.pt", "0", "1"]


@pytest.mark.parametrize("one, other, waits", [("a", "a", True), ("a", "a/b", True), ("a/b", "a", True), ("a/b", "a/c", False)])
def test_a_watch_waits_for_a_different_one_in_its_folder_or_above_or_below(one: str, other: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                               capsys: pytest.CaptureFixture):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    for name in ("a/b", "a/c", "temporary"):
        (tmp_path / name).mkdir(parents=True)
    got = threading.Event()

    def wait() -> None:
        with locked([str(tmp_path / other)]):
            got.set()

    with locked([str(tmp_path / one)]):
        thread = threading.Thread(target=wait)
        thread.start()
        assert got.wait(0.3 if waits else 30) != waits
        assert (f"waiting for a different watch in {tmp_path}" in capsys.readouterr().err) == waits
    thread.join(30)
    assert got.is_set() and list((tmp_path / "temporary").iterdir()) == []


def test_the_folder_of_the_script_and_the_current_one_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("here/below", "elsewhere", "lib/site-packages/one"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    here = str(tmp_path / "here")
    assert watched_folders(["below/train.py"]) == [here] and watched_folders(["-m", "train"]) == [here]
    assert watched_folders([str(tmp_path / "elsewhere" / "train.py")]) == [here, str(tmp_path / "elsewhere")]
    assert watched_folders([str(tmp_path / "lib" / "site-packages" / "one" / "train.py")]) == [here]


SMALL = """
import os, time, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

{begin}
torch.manual_seed(0)
net = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
sampler = DistributedSampler(data)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for X, y in DataLoader(data, 4, sampler=sampler):
        optimizer.zero_grad()
        ((net(X) - y) ** 2).mean().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), "model.pt")
    while not os.path.exists(os.environ.get("WAIT_FOR", os.devnull)):
        time.sleep(0.1)
    dist.barrier()
"""


@pytest.mark.weekly
@pytest.mark.parametrize("second", ["in the same folder", "below"])
def test_two_watches_at_once_leave_the_files_as_they_were(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, second: str):
    below = tmp_path / "below"
    below.mkdir()
    for folder in (tmp_path, below):
        (folder / "train.py").write_text(SMALL.format(begin='dist.init_process_group("gloo")'))
        (folder / "model.pt").write_text("precious")
    before, signal_file = state(tmp_path), tmp_path_factory.mktemp("outside") / "go"
    one = start("-m", "d2lpar", "watch", "train.py", cwd=tmp_path, WAIT_FOR=str(signal_file))
    wait_until(lambda: (tmp_path / "model.pt").read_bytes() != b"precious")
    other = start("-m", "d2lpar", "watch", "train.py", cwd=tmp_path if second == "in the same folder" else below)
    assert other.stderr and f"waiting for a different watch in {tmp_path} to end" in other.stderr.readline()
    signal_file.touch()
    ends = done(one), done(other)
    assert [(code, "no fault found" in out) for code, out, _ in ends] == [(0, True)] * 2, ends
    assert state(tmp_path) == before


@pytest.mark.weekly
def test_train_ddp_is_watched_and_trained_in_one_folder_in_any_order(tmp_path: Path):
    assert done(start("-m", "d2lpar", "script", cwd=tmp_path))[0] == 0
    before = state(tmp_path)
    said = watched("train_ddp.py", "--save-every=10", cwd=tmp_path)
    assert said["ok"] and not said["findings"] and said["files"] == {} and not said["stderr"], said
    assert state(tmp_path) == before
    real = start("train_ddp.py", "--save-every=5", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    wait_until(lambda: list(tmp_path.glob("checkpoints/step-*.pt")))
    real.send_signal(signal.SIGTERM)
    assert done(real)[0] == 75 and (tmp_path / "checkpoints" / "stopped").exists()
    before = state(tmp_path)
    said = watched("train_ddp.py", "--save-every=5", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert said["error"] is None and not said["findings"] and said["files"] == {} and not said["stderr"], said
    assert said["exit"] == 3 and "for 24 steps" in said["compared"] and state(tmp_path) == before


LISTENS = """
import glob, sys
dist.init_process_group("gloo", {arguments})
own = set()
for file in glob.glob("/proc/self/fd/*"):
    try:
        own.add(os.readlink(file))
    except OSError:
        pass
places = [line.split() for kind in ("tcp", "tcp6") for line in list(open(f"/proc/net/{{kind}}"))[1:]]
places = [place[1].split(":")[0] for place in places if place[3] == "0A" and f"socket:[{{place[9]}}]" in own]
loopback = ["0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"]
if not places or not set(places) <= set(loopback):
    sys.exit(f"listens on {{places}}")
"""


@linux
@pytest.mark.weekly
@pytest.mark.parametrize("arguments", ["", 'init_method="tcp://127.0.0.1:29511", world_size=2, rank=int(os.environ["RANK"])',
                                       '"env://", None, 2, int(os.environ["RANK"])'])
def test_no_rank_listens_beyond_this_machine(arguments: str, tmp_path: Path):
    (tmp_path / "train.py").write_text(SMALL.format(begin=LISTENS.format(arguments=arguments)))
    said = watched("train.py", cwd=tmp_path)
    assert said["ok"] and said["error"] is None, said


@pytest.mark.parametrize("mode, is_link", [(0o755, False), (0o700, True)])
def test_a_shared_folder_that_somebody_else_may_have_made_is_refused(mode: int, is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    variables = {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "RANK": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scripts, "_agent", lambda: "agent")
    shared = tmp_path / "d2lpar-watch-agent-0"
    (tmp_path / "of others").mkdir(mode=mode)
    (tmp_path / "of others").chmod(mode)
    shared.symlink_to("of others") if is_link else (tmp_path / "of others").rename(shared)
    with pytest.raises(NotRun, match="closed to others"):
        scripts._UnderTorchrun(False, ())


def test_what_became_of_files_is_a_line_of_the_verdict_and_of_its_json():
    found = Diagnosis("watched train.py", watched=True)
    assert "files:" not in str(found) and found.as_dict()["files"] == {}
    found.files = {"not put back": ["a", "b"], "new": ["c"]}
    assert "\nfiles: not put back: a, b; new: c\n" in str(found) and found.as_dict()["files"] == found.files


def test_files_of_a_run_without_a_verdict_are_told_too(monkeypatch: pytest.MonkeyPatch):
    ran = Ran(2, [[], []], output="usage", files={"new": ["c"]})
    with pytest.raises(NotRun, match="\nfiles: new: c$"):
        scripts._judge(ran, ["train.py"])
    monkeypatch.setattr(scripts, "run_watched", lambda *args, pretend=True, **kwargs: ran._replace(
        crashed=True, output="cuda", files={"new": ["c" if pretend else "d"]}))
    assert scripts._run(["train.py"], 2).files == {"new": ["c", "d"]}  # both runs'


def test_interrupted_it_puts_files_back_and_tells_what_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), Run(1, False, watched=[str(tmp_path)]):
        (tmp_path / "new").touch()
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "files: new: new\n"


def test_of_many_files_the_verdict_names_twenty_and_counts_the_others() -> None:
    names = [f"{i}.txt" for i in range(1000)]
    [line] = about_files({"not put back": names})
    assert line == f"files: not put back: {', '.join(names[:20])} and 980 more, which --json lists"
    assert about_files({"new": names[:20]}) == [f"files: new: {', '.join(names[:20])}"]


@pytest.mark.weekly
def test_many_small_files_are_kept_for_a_program_that_deletes_them(tmp_path: Path) -> None:
    """With half a second for the copies, only 8,160 of 20,000 came back."""
    folder, kept = tmp_path / "data", tmp_path / "kept"
    for one in (folder, kept):
        one.mkdir()
    for i in range(20_000):
        (folder / f"{i}.bin").write_bytes(i.to_bytes(2, "big") * 100)
    keep(str(kept), [str(folder)])
    shutil.rmtree(folder)
    assert "not put back" not in put_back(str(kept)) and len(list(folder.iterdir())) == 20_000
    assert (folder / "300.bin").read_bytes() == (300).to_bytes(2, "big") * 100
