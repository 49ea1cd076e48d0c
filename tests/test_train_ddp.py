"""Tests of book/downloads/train_ddp.py: any number of ranks trains the same, counts each example once, and ends clean."""

from __future__ import annotations

import ast
import os
import signal
import struct
import subprocess
import sys
import time

import psutil
import pytest
import torch

WAIT_S = 120  # for what takes some seconds
EXAMPLES = {"train": 240, "t10k": 101}


@pytest.fixture(scope="module")
def script(root):
    return root / "book" / "downloads" / "train_ddp.py"


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
    """Starts the script on so many ranks, with a checkpoint of some name; at the end, nothing of it may be left."""
    started, folder = [], tmp_path_factory.mktemp("checkpoints")

    def start(ranks, name, *options):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script, "--data", data,
                   "--batch-size", "24", "--checkpoint", folder / name, *options]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(list(map(str, command)), env=environment, text=True, cwd=folder, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    def saved(name):
        return torch.load(folder / name)

    start.saved = saved

    before = psutil.Process().children(recursive=True)
    yield start
    for process in started:
        process.stdout.close()
        process.kill()
        process.wait()
    assert psutil.Process().children(recursive=True) == before


def lines(process):
    """What it printed, after a good end."""
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, printed
    return [line for line in printed.splitlines() if line.startswith("epoch")]


def test_it_needs_nothing_but_torch_and_torchvision(script):
    imported = [name.split(".")[0] for node in ast.walk(ast.parse(script.read_text("utf8"))) if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])]
    assert set(imported) - sys.stdlib_module_names == {"torch", "torchvision"}
    assert max(map(len, script.read_text("utf8").splitlines())) <= 88


def test_without_torchrun_it_says_how_to_start_it(script, data):
    run = subprocess.run([sys.executable, script, "--data", data], capture_output=True, text=True, timeout=WAIT_S,
                         env={name: value for name, value in os.environ.items() if name != "LOCAL_RANK"})
    assert run.returncode == 1 and "start it by torchrun: torchrun --nproc-per-node=2" in run.stderr


@pytest.fixture(scope="module")
def trained(start):
    """For 1, 2 and 3 ranks, what two epochs print and leave."""
    return {ranks: (lines(start(ranks, f"{ranks}.pt", "--epochs", "2")), start.saved(f"{ranks}.pt")) for ranks in (1, 2, 3)}


@pytest.mark.slow
def test_one_two_and_three_ranks_train_the_same_and_count_each_example_once(trained):
    for printed, saved in trained.values():
        assert len(printed) == 2 and all(f"of {EXAMPLES['t10k']} right" in line for line in printed)
        assert int(printed[-1].split()[2]) > 30  # chance is 10
        torch.testing.assert_close(saved["net"], trained[1][1]["net"], rtol=1e-3, atol=1e-5)  # after 20 steps in float32


@pytest.mark.slow
def test_a_resumed_training_ends_as_an_undisturbed_one(start, trained):
    parts = lines(start(2, "parts.pt", "--epochs", "1")) + lines(start(2, "parts.pt", "--epochs", "2"))
    whole, undisturbed = trained[2]
    assert parts == whole
    torch.testing.assert_close(start.saved("parts.pt"), undisturbed, rtol=0, atol=0)


@pytest.mark.slow
def test_a_killed_rank_ends_all(start):
    process = start(2, "killed.pt", "--epochs", "100000")
    assert process.stdout.readline().startswith("epoch 1")
    ranks = [child for child in psutil.Process(process.pid).children(recursive=True) if "train_ddp.py" in str(child.cmdline())]
    assert len(ranks) == 2
    ranks[1].send_signal(signal.SIGKILL)
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1 and "Signal 9 (SIGKILL)" in printed
    deadline = time.monotonic() + WAIT_S
    while any(rank.is_running() for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("options, words", [
    (["--batch-size", "25"], "2 ranks cannot share a batch of 25"),
    (["--data", "nowhere"], "no Fashion-MNIST in nowhere (--download?)"),
])
def test_a_mistake_is_told_in_one_line(start, options, words):
    process = start(2, "mistake.pt", *options)
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1 and words in printed
