"""Tests of d2lpar/pages/stored/train_ddp.py: any number of ranks trains the same, counts each example once, and ends clean."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys

import psutil
import pytest
import torch
from torchvision.datasets import FashionMNIST

from helpers.ports import free_port
from helpers.waiting import until

WAIT_S = 120  # for what takes some seconds
EXAMPLES = {"train": 240, "t10k": 101}


LAUNCHER = """
import json, os, random, runpy, sys
import torch._dynamo, torchvision  # once: all ranks of all calls are copies of this process

def become(rank, ranks, port, out, argv):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the orders are not for the ranks
    for stream in (1, 2):
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    torch.default_generator.seed()  # as a fresh process has generators of its own
    random.seed()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                      RANK=str(rank), LOCAL_RANK=str(rank))
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
    assert not torch.distributed.is_initialized(), "the group is left open"
    sys.stdout.flush()
    os._exit(0)  # to take PyTorch apart takes long; torchrun's ranks do it

for line in sys.stdin:
    ranks, port, out, argv = json.loads(line)
    running = []
    for rank in range(ranks):
        running.append(os.fork())
        if running[-1] == 0:
            become(rank, ranks, port, out, argv)
    failed = False
    while running:
        process, status = os.wait()
        running.remove(process)
        if status and not failed:
            failed = True
            for other in running:
                os.kill(other, 15)  # which has lost its peer
    print(int(failed), flush=True)
"""


@pytest.fixture(scope="module")
def script(root):
    return root / "d2lpar" / "pages" / "stored" / "train_ddp.py"


@pytest.fixture(scope="module")
def other_script(script, tmp_path_factory):
    """The script as a reader changes it: a network that is not the same in evaluation, nor twice in training."""
    text, path = script.read_text("utf8"), tmp_path_factory.mktemp("scripts") / "train_ddp.py"
    changed = text.replace("nn.Conv2d(1, 16, 5, padding=2),", "nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16),")
    changed = changed.replace("nn.Flatten(),", "nn.Flatten(), nn.Dropout(),")
    changed = changed.replace("    net.eval()\n", """    net.eval()
    for x in net.buffers():
        rank_0s = x.clone()
        dist.broadcast(rank_0s, src=0)
        assert rank_0s.equal(x), "each rank evaluates another network"
""")
    assert "BatchNorm2d(16)" in changed and "Dropout()" in changed and "assert rank_0s" in changed
    path.write_text(changed, "utf8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images that are easily told apart, in files as torchvision's."""
    folder = tmp_path_factory.mktemp("data")
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for name, n in EXAMPLES.items():
        y = torch.arange(n) % 10
        X = torch.rand(n, 28, 28, generator=generator) * 40
        for i in range(n):
            X[i, 2 * y[i]:2 * y[i] + 5] += 180
        for kind, x in (("images-idx3", X), ("labels-idx1", y)):
            sizes = struct.pack(f">HBB{x.dim()}I", 0, 8, x.dim(), *x.shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(sizes + x.to(torch.uint8).numpy().tobytes())
    return folder


@pytest.fixture(scope="module")
def start(script, data, tmp_path_factory):
    """Starts the script on so many ranks by torchrun, with a checkpoint of some name; at the end, nothing of it may be left.

    `start.run` does the same by a program that gives the ranks the same variables and has loaded PyTorch already, and
    returns its exit code and what was printed. `start.saved` reads a checkpoint.
    """
    folder = tmp_path_factory.mktemp("checkpoints")
    loopback = "".join(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": loopback, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def begin(command, **pipes):
        started.append(subprocess.Popen(list(map(str, command)), env=environment, text=True, cwd=folder, start_new_session=True,
                                        stdout=subprocess.PIPE, **pipes))
        return started[-1]

    def call(name, *options, script=script):
        return [script, "--data", data, "--batch-size", "24", "--checkpoint", folder / name, *options]

    def start(ranks, *what, **other):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
        return begin([*torchrun, *call(*what, **other)], stderr=subprocess.STDOUT)

    def run(ranks, *what, **other):
        out = folder / f"out {next(numbers)}"
        out.touch()
        assert launcher.poll() is None, "the launcher has died in an earlier test"
        print(json.dumps([ranks, free_port(), str(out), list(map(str, call(*what, **other)))]), file=launcher.stdin, flush=True)
        answer = launcher.stdout.readline() if answers(launcher) else ""
        if not answer:  # it has died, or its ranks hang
            with contextlib.suppress(OSError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait(WAIT_S)
        return int(answer or -signal.SIGKILL), out.read_text("utf8") + said.read_text("utf8")

    before, started, numbers, said = set(psutil.Process().children(recursive=True)), [], itertools.count(), folder / "said"
    with open(said, "w") as file:
        launcher = begin([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stderr=file)
    start.run, start.folder, start.saved = run, folder, lambda name: torch.load(folder / name)
    yield start
    with contextlib.suppress(OSError):
        launcher.stdin.close()
    answers(launcher)  # by its end
    for process in started:
        if process.returncode is None:  # not reaped, so the number is still its own
            ranks = psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # what is left of it, also where it has ended itself
            for rank in ranks:  # those of torchrun have groups of their own
                with contextlib.suppress(psutil.Error):
                    rank.kill()
        process.wait()
        process.stdout.close()
    assert set(psutil.Process().children(recursive=True)) <= before


def answers(process):
    """Whether it prints a line, or ends, in time."""
    return select.select([process.stdout], [], [], WAIT_S)[0] != []


def lines(ended, begin="epoch"):
    """What was printed in lines that begin so, after a good end."""
    code, printed = ended
    assert code == 0, printed
    return [line for line in printed.splitlines() if line.startswith(begin)]


def end_of(process):
    """Its exit code and what it printed."""
    printed, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, printed


def test_it_needs_nothing_but_torch_and_torchvision(script):
    imported = [name.split(".")[0] for node in ast.walk(ast.parse(script.read_text("utf8"))) if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])]
    assert set(imported) - sys.stdlib_module_names == {"torch", "torchvision"}
    assert max(map(len, script.read_text("utf8").splitlines())) <= 88


def load_module(script):
    spec = importlib.util.spec_from_file_location("train_ddp", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ranks_without_a_gpu_of_their_own_beside_ranks_with_one_are_refused(script, monkeypatch):
    module = load_module(script)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["train_ddp.py", "--data", "nowhere"])
    for name, value in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2 ranks and 1 GPUs"):
        module.main()


def test_fetching_needs_no_torchrun_and_trains_nothing(script, monkeypatch, data):
    module, asked = load_module(script), []
    monkeypatch.setattr(module, "FashionMNIST", lambda *args, download: asked.append(download) or FashionMNIST(*args))
    monkeypatch.setattr(module, "train", lambda *args: pytest.fail("it trains"))
    monkeypatch.setattr(sys, "argv", ["train_ddp.py", "--data", str(data), "--download"])
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    module.main()
    assert asked == [True]


def test_without_torchrun_it_says_how_to_start_it(script, monkeypatch, data):
    monkeypatch.setattr(sys, "argv", ["train_ddp.py", "--data", str(data)])
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(SystemExit, match="torchrun --nproc-per-node=2 train_ddp.py"):
        load_module(script).main()


@pytest.fixture(scope="module")
def trained(start):
    """For 1, 2 and 3 ranks, what two epochs print and leave; two are started by torchrun."""
    ended = {1: start.run(1, "1.pt", "--epochs", "2"), 2: end_of(start(2, "2.pt", "--epochs", "2")), 3: start.run(3, "3.pt", "--epochs", "2")}
    return {ranks: (lines(end), start.saved(f"{ranks}.pt")) for ranks, end in ended.items()}


@pytest.mark.slow
def test_one_two_and_three_ranks_train_the_same_and_count_each_example_once(trained):
    for printed, saved in trained.values():
        assert len(printed) == 2 and all(f"of {EXAMPLES['t10k']} right" in line for line in printed)
        assert int(printed[-1].split()[2]) > 30  # chance is 10
        torch.testing.assert_close(saved["net"], trained[1][1]["net"], rtol=1e-3, atol=1e-5)  # after 20 steps in float32


@pytest.mark.slow
def test_a_resumed_training_ends_as_an_undisturbed_one(start, trained):
    parts = lines(start.run(2, "parts.pt", "--epochs", "1")) + lines(start.run(2, "parts.pt", "--epochs", "2"))
    whole, undisturbed = trained[2]
    assert parts == whole
    torch.testing.assert_close(start.saved("parts.pt"), undisturbed, rtol=0, atol=0)
    assert lines(start.run(2, "parts.pt", "--epochs", "2"), begin="2 ranks") == [
        f"2 ranks, gloo on cpu; {start.folder / 'parts.pt'} has 2 of 2 epochs"]
    assert len(lines(start.run(3, "parts.pt", "--epochs", "3", "--lr", "0.01"))) == 1  # also on another number of ranks
    assert start.saved("parts.pt")["optimizer"]["param_groups"][0]["lr"] == 0.01


@pytest.mark.slow
def test_with_dropout_and_batchnorm_too_and_what_is_saved_is_what_was_evaluated(start, other_script, data):
    whole = lines(start.run(2, "folder/whole.pt", "--epochs", "2", script=other_script))
    for epochs in "12":
        last = lines(start.run(2, "folder/parts.pt", "--epochs", epochs, script=other_script))
    assert last == whole[1:]
    saved = start.saved("folder/whole.pt")
    torch.testing.assert_close(start.saved("folder/parts.pt"), saved, rtol=0, atol=0)
    net, files = load_module(other_script).make_net().eval(), FashionMNIST(data, False)
    net.load_state_dict(saved["net"])
    right = (net(files.data[:, None] / 255).argmax(1) == files.targets).sum()
    assert last[0].startswith(f"epoch 2: {right} of {EXAMPLES['t10k']} right")


@pytest.mark.slow
def test_a_killed_rank_ends_all(start):
    process = start(2, "killed.pt", "--epochs", "100000")
    said = list(itertools.takewhile(lambda line: not line.startswith("epoch 1"), process.stdout))
    assert any(line.startswith("2 ranks, gloo on cpu") for line in said), said
    ranks = [child for child in psutil.Process(process.pid).children(recursive=True) if "train_ddp.py" in str(child.cmdline())]
    assert len(ranks) == 2
    ranks[1].send_signal(signal.SIGKILL)
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1 and "Signal 9 (SIGKILL)" in printed
    until(lambda: not any(rank.is_running() for rank in ranks), WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("options, words", [
    (["--batch-size", "25"], "2 ranks cannot share a batch of 25"),
    (["--download"], "python train_ddp.py --data DIR --download"),
    (["--data", "nowhere"], "no Fashion-MNIST in nowhere (--download?)"),
])
def test_a_mistake_is_told_in_one_line(start, options, words):
    code, printed = start.run(2, "mistake.pt", *options)
    assert code == 1 and words in printed
