"""Tests of d2lpar/pages/stored/train_ddp.py: any number of ranks trains the same, and a mistake ends all of them in words."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import json
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
from datetime import timedelta

import psutil
import pytest
import torch
from torch.distributed.run import parse_args as torchrun_options
from torchvision.datasets import FashionMNIST

from helpers.ports import free_port

WAIT_S = 120  # for what takes some seconds
EXAMPLES = {"train": 240, "t10k": 101}


LAUNCHER = """
import json, os, random, runpy, sys
import torch._dynamo, torchvision  # once: all ranks of all calls are copies of this process

def become(rank, ranks, port, has_agent, out, argv):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the orders are not for the ranks
    for stream in (1, 2):
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    torch.default_generator.seed()  # as a fresh process has generators of its own
    random.seed()
    if ranks:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                          RANK=str(rank), LOCAL_RANK=str(rank), TORCHELASTIC_USE_AGENT_STORE=str(has_agent))
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
    assert not torch.distributed.is_initialized(), "the group is left open"
    sys.stdout.flush()
    os._exit(0)  # to take PyTorch apart takes long; torchrun's ranks do it

for line in sys.stdin:
    ranks, port, has_agent, *what = json.loads(line)
    running, failed = set(), 0
    for rank in range(ranks or 1):
        process = os.fork()
        if process == 0:
            become(rank, ranks, port, has_agent, *what)
        running.add(process)
    if has_agent:  # or rank 0 holds the store
        store = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while running:  # the others are not ended, as if each rank had a machine of its own
        process, status = os.wait()
        running.remove(process)
        failed += status != 0
    if has_agent:
        assert failed or not store.check(["plan 0"]), "a restart would find an old plan"
        del store
    print(failed, flush=True)
"""


@pytest.fixture(scope="module")
def script(root):
    return root / "d2lpar" / "pages" / "stored" / "train_ddp.py"


@pytest.fixture(scope="module")
def changed(script, tmp_path_factory):
    """The script as a reader, or a misfortune, changes it: each of some words replaced by others."""
    def changed(changes, before=""):
        text, path = script.read_text("utf8"), tmp_path_factory.mktemp("scripts") / "train_ddp.py"
        for old, new in changes.items():
            assert text.count(old) == 1, f"{text.count(old)} times: {old}"
            text = text.replace(old, new)
        path.write_text(text.replace("import argparse\n", f"import argparse\n{before}\n", 1), "utf8")
        return path

    return changed


@pytest.fixture(scope="module")
def other_script(changed):
    """A network that is not the same in evaluation, nor twice in training."""
    return changed({
        "nn.Conv2d(1, 16, 5, padding=2),": "nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16),",
        "nn.Flatten(),": "nn.Flatten(), nn.Dropout(),",
        "    net.eval()\n": """    net.eval()
    for x in net.buffers():
        rank_0s = x.clone()
        dist.broadcast(rank_0s, src=0)
        assert rank_0s.equal(x), "each rank evaluates another network"
""",
    })


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

    `start.run` does the same by a program that gives the ranks the same variables and has loaded PyTorch already, but ends
    none when another fails; it returns how many failed and what was printed. On 0 ranks the script runs alone, without
    those variables. `start.saved` reads a checkpoint.
    """
    folder = tmp_path_factory.mktemp("checkpoints")
    loopback = "".join(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))
    torchruns = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    environment = {k: v for k, v in os.environ.items() if k not in torchruns} | {"GLOO_SOCKET_IFNAME": loopback, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def begin(command, **pipes):
        started.append(subprocess.Popen(list(map(str, command)), env=environment, text=True, cwd=folder, start_new_session=True,
                                        stdout=subprocess.PIPE, **pipes))
        return started[-1]

    def call(name, *options, script=script):
        return [script, "--data", data, "--batch-size", "24", "--checkpoint", folder / name, *options]

    def start(ranks, *what, **other):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
        return begin([*torchrun, *call(*what, **other)], stderr=subprocess.STDOUT)

    def run(ranks, *what, has_agent=True, **other):
        out = folder / f"out {next(numbers)}"
        out.touch()
        assert launcher.poll() is None, "the launcher has died in an earlier test"
        print(json.dumps([ranks, free_port(), has_agent and ranks > 0, str(out), list(map(str, call(*what, **other)))]), file=launcher.stdin, flush=True)
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
    """What was printed in lines that begin so, but for the speed, after a good end."""
    code, printed = ended
    assert code == 0, printed
    return [re.sub(", [0-9]+ images/s.*", "", line) for line in printed.splitlines() if line.startswith(begin)]


def assert_ends_in_words(ended, ranks, *words):
    """All ranks have failed, none by a traceback, and each has printed these words."""
    failed, printed = ended
    assert failed == ranks and "Traceback" not in printed, printed
    assert all(printed.count(w) == ranks for w in words), printed


def end_of(process):
    """Its exit code and what it printed."""
    printed, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, printed


def load_module(script):
    spec = importlib.util.spec_from_file_location("train_ddp", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(script, monkeypatch, data, tmp_path):
    """The script in this process, as rank 0 of 1, up to where the ranks would meet; `kept` has what went to whom."""
    module = load_module(script)
    monkeypatch.setattr(sys, "argv", ["train_ddp.py", "--data", str(data), "--checkpoint", str(tmp_path / "checkpoint.pt"), "--batch-size", "24"])
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    module.kept = kept = {}

    def keep(place, name, then):
        monkeypatch.setattr(place, name, lambda *args, **named: kept.setdefault(name, []).append((args, named)) or then(*args, **named))

    def met(*args):
        raise InterruptedError("the ranks meet")

    keep(module.time, "sleep", lambda seconds: None)
    keep(module, "DataLoader", module.DataLoader)
    keep(torch, "load", torch.load)
    keep(torch.cuda, "set_device", lambda device: None)
    keep(module.dist, "init_process_group", met)
    return module


def test_it_needs_nothing_but_torch_and_torchvision_and_is_no_longer_than_two_pages(script):
    text = script.read_text("utf8")
    imported = [name.split(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])]
    assert set(imported) - sys.stdlib_module_names == {"torch", "torchvision"}
    assert max(map(len, text.splitlines())) <= 88 and len(text.splitlines()) <= 160


def test_torchrun_takes_the_commands_that_it_shows_and_it_says_with_which_pytorch(script):
    text = load_module(script).__doc__.replace("\\\n", "").replace("srun ", "")
    assert re.search(r"^Run with PyTorch \d+\.\d+", text, re.MULTILINE) and "#SBATCH --nodes=2 " in text
    shown = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith(("python ", "torchrun "))]
    assert [words[0] for words in shown] == ["python", "torchrun", "torchrun", "torchrun"]
    for words in shown:
        assert words[-3:] == ["train_ddp.py", "--data", "DIR"]
    machines = [torchrun_options(words[1:]) for words in shown[1:]]
    assert [(x.nnodes, x.nproc_per_node, x.rdzv_backend) for x in machines] == [("1:1", "2", "static"), ("2", "2", "c10d"), ("2", "4", "c10d")]
    assert all(x.rdzv_id != "none" and x.rdzv_endpoint.endswith(":29500") for x in machines[1:])


def test_ranks_without_a_gpu_of_their_own_beside_ranks_with_one_are_refused(module, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="2 ranks and 1 GPUs"):
        module.main()


def test_ranks_wait_five_minutes_for_each_other_and_use_gloo_where_there_are_no_gpus(module, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InterruptedError):
        module.main()
    backend, _, timeout, ranks, rank, _ = module.kept["init_process_group"][0][0]
    assert (backend, timeout, ranks, rank) == ("gloo", timedelta(minutes=5), 1, 0)
    assert "set_device" not in module.kept


def test_a_rank_takes_its_own_gpu_before_anything_is_there_and_nothing_is_loaded_to_another(module, monkeypatch, tmp_path):
    net, moved = module.make_net(), []
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, tmp_path / "checkpoint.pt")
    monkeypatch.setattr(net, "to", lambda device: moved.append((str(device), len(module.kept["set_device"]))) or net)
    monkeypatch.setattr(module, "make_net", lambda: net)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in (("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(InterruptedError):
        module.main()
    assert module.kept["set_device"] == [((1,), {})] and moved == [("cuda", 1)]
    assert [named for _, named in module.kept["load"]] == [{"map_location": "cpu", "weights_only": True, "mmap": True}]
    assert [named["pin_memory"] for _, named in module.kept["DataLoader"]] == [True, True]
    assert module.kept["init_process_group"][0][0][0] == "nccl"


@pytest.mark.parametrize("workers, expected", [("0", (0, False, None)), ("2", (2, True, "forkserver"))])
def test_workers_stay_for_all_epochs_and_are_not_forked_from_a_rank(module, workers, expected):
    sys.argv += ["--workers", workers]
    with pytest.raises(InterruptedError):
        module.main()
    for _, named in module.kept["DataLoader"]:
        assert (named["num_workers"], named["persistent_workers"], named["multiprocessing_context"]) == expected
        assert named["generator"] is not torch.default_generator


@pytest.fixture(scope="module")
def trained(start):
    """For 1, 2 and 3 ranks, what two epochs print and leave; two are started by torchrun."""
    ended = {1: start.run(1, "1.pt", "--epochs", "2"), 2: end_of(start(2, "2.pt", "--epochs", "2")), 3: start.run(3, "3.pt", "--epochs", "2")}
    return {ranks: (lines(end), start.saved(f"{ranks}.pt")) for ranks, end in ended.items()}


def assert_same_bits(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.slow
def test_one_two_and_three_ranks_train_the_same_and_count_each_example_once(trained):
    for printed, saved in trained.values():
        assert len(printed) == 2 and all(f"of {EXAMPLES['t10k']} right" in line for line in printed)
        assert int(printed[-1].split()[4]) > 30  # chance is 10
        assert [losses(line) for line in printed] == pytest.approx([losses(line) for line in trained[1][0]], rel=1e-3)
        torch.testing.assert_close(saved["net"], trained[1][1]["net"], rtol=1e-3, atol=1e-5)  # after 20 steps in float32


def losses(line):
    return float(re.search("loss ([^,]*),", line)[1])


@pytest.mark.slow
def test_alone_without_torchrun_it_is_rank_0_of_1(start, trained):
    ended = start.run(0, "alone.pt", "--epochs", "2")
    assert lines(ended) == trained[1][0]
    assert_same_bits(start.saved("alone.pt"), trained[1][1])


@pytest.mark.slow
def test_a_resumed_training_ends_as_an_undisturbed_one(start, trained):
    parts = lines(start.run(2, "parts.pt", "--epochs", "1")) + lines(start.run(2, "parts.pt", "--epochs", "2"))
    whole, undisturbed = trained[2]
    assert parts == whole
    assert_same_bits(start.saved("parts.pt"), undisturbed)
    assert lines(start.run(2, "parts.pt", "--epochs", "2"), begin="PyTorch") == [
        f"PyTorch {torch.__version__}, gloo on cpu, ranks 2, batch 24, lr 0.05, seed 0, bf16 False, "
        f"{EXAMPLES['train']} + {EXAMPLES['t10k']} examples; {start.folder / 'parts.pt'} has 2 of 2 epochs"]
    assert len(lines(start.run(3, "parts.pt", "--epochs", "3"))) == 1  # also on another number of ranks


@pytest.mark.slow
def test_with_dropout_batchnorm_and_workers_too_and_what_is_saved_is_what_was_evaluated(start, other_script, data):
    whole = lines(start.run(2, "folder/whole.pt", "--epochs", "2", "--workers", "1", script=other_script))
    for epochs in "12":
        last = lines(start.run(2, "folder/parts.pt", "--epochs", epochs, script=other_script))
    assert last == whole[1:]
    saved = start.saved("folder/whole.pt")
    assert_same_bits(start.saved("folder/parts.pt"), saved)
    net, files = load_module(other_script).make_net().eval(), FashionMNIST(data, False)
    net.load_state_dict(saved["net"])
    right = (net(files.data[:, None] / 255).argmax(1) == files.targets).sum()
    assert f", {right} of {EXAMPLES['t10k']} right, {right / EXAMPLES['t10k']:.3f}" in last[0]


@pytest.mark.slow
def test_resumed_rates_are_those_of_the_command_for_all_groups_and_the_rest_is_the_files(start, changed):
    def groups(momentum):
        return changed({"(net.parameters(), args.lr, momentum=0.9)": f"""([
            {{"params": [p], "lr": args.lr / (i + 1)}} for i, p in enumerate(net.parameters())], momentum={momentum})"""})

    start.run(1, "groups.pt", "--epochs", "1", script=groups(0.9))
    lines(start.run(1, "groups.pt", "--epochs", "2", "--lr", "0.01", script=groups(0.5)))
    found = start.saved("groups.pt")["optimizer"]["param_groups"]
    assert [group["lr"] for group in found] == [0.01 / (i + 1) for i in range(8)]
    assert {group["momentum"] for group in found} == {0.9}


@pytest.mark.slow
def test_seeds_in_a_row_share_no_dropout_and_no_order_of_the_examples(start, changed):
    script = changed({"        net.train()\n": """        net.train()
        print(f"drawn;{torch.initial_seed()};{list(sampler)}\\n", end="", flush=True)
"""})
    drawn = [lines(start.run(2, f"seed {seed}.pt", "--epochs", "3", "--seed", seed, script=script), begin="drawn;") for seed in "012"]
    assert [len(of_seed) for of_seed in drawn] == [6, 6, 6], drawn
    seeds = sorted(int(line.split(";")[1]) for of_seed in drawn for line in of_seed)
    assert len(set(seeds)) == 18 and seeds[6] - seeds[5] > 100_000 and seeds[12] - seeds[11] > 100_000
    orders = {line.split(";")[2] for of_seed in drawn for line in of_seed}
    assert len(orders) == 18


@pytest.mark.slow
def test_the_loss_is_the_mean_over_all_ranks_and_the_epoch(start, script, data):
    line, = lines(start.run(3, "still.pt", "--epochs", "1", "--lr", "0"))  # so it is that of one network
    net, files = load_module(script).make_net(), FashionMNIST(data, True)
    net.load_state_dict(start.saved("still.pt")["net"])
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(net(files.data[:, None] / 255), files.targets)
    assert losses(line) == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.slow
def test_a_training_that_has_broken_down_shows_it(start):
    assert "loss nan" in lines(start.run(1, "nan.pt", "--epochs", "1", "--lr", "1e30"))[0]


@pytest.mark.slow
def test_the_speed_is_that_of_all_ranks_without_the_evaluation_and_compared_with_one_alone(start, changed):
    clock = "import itertools; CLOCK = itertools.count()"  # a second goes by from one look to the next
    script = changed({"start = torch.zeros((), device=device), time.perf_counter()": "start = torch.zeros((), device=device), next(CLOCK)",
                      "(time.perf_counter() - start)": "(next(CLOCK) - start)", "    net.eval()\n": "    net.eval(); next(CLOCK)\n"}, clock)
    code, printed = start.run(3, "speed.pt", "--epochs", "2", "--alone", "100", script=script)
    assert code == 0 and printed.count(", 240 images/s, efficiency 80%\n") == 2, printed


@pytest.mark.slow
def test_bfloat16_is_for_computing_and_the_weights_are_float32(start, trained):
    lines(start.run(1, "bf16.pt", "--epochs", "2", "--bf16"))
    for name, weight in start.saved("bf16.pt")["net"].items():
        exact = trained[1][1]["net"][name]
        assert weight.dtype == torch.float32 and not weight.equal(weight.bfloat16().float())
        assert 1e-4 < (weight - exact).norm() / exact.norm() < 0.3


@pytest.mark.slow
def test_a_checkpoint_that_was_not_written_to_the_end_leaves_the_one_before(start, changed):
    script = changed({"            torch.save(": "            write_half("}, """
def write_half(state, path):
    open(path, "wb").write(b"half")
    raise OSError("no space left")
""")
    lines(start.run(1, "half.pt", "--epochs", "1"))
    failed, printed = start.run(1, "half.pt", "--epochs", "2", script=script)
    assert failed == 1 and "no space left" in printed
    assert start.saved("half.pt")["epoch"] == 1


RANKS = 'import os\nRANK = os.environ["RANK"]\n'
PARSED = "    args = parser.parse_args()\n"
MISTAKES = [  # options, what is changed in the script, what each rank says
    *((["--batch-size", n], {}, [f"no equal shards: ranks 2, batch {n}, 240 examples"]) for n in ("25", "242", "0")),
    (["--data", "nowhere"], {}, ["no Fashion-MNIST in nowhere (--download?)"]),
    *(([], {PARSED: f"{PARSED}    args.data = 'nowhere' if RANK == '{rank}' else args.data\n"}, ["no Fashion-MNIST in nowhere (--download?)"]) for rank in "01"),
    ([], {PARSED: f"{PARSED}    args.epochs += int(RANK)\n"}, ["of 5 epochs", "of 6 epochs"]),
    ([], {"    n, batch": "    train_set.tensors = [x[:200 + int(RANK)] for x in train_set.tensors]\n    n, batch"}, ["200 + 101 ", "201 + 101 "]),
]


@pytest.mark.slow
@pytest.mark.parametrize("options, changes, words", MISTAKES, ids=str)
def test_a_mistake_also_of_one_rank_alone_is_told_in_words_by_all_before_anything_trains(start, changed, options, changes, words):
    assert_ends_in_words(start.run(2, "mistake.pt", *options, script=changed(changes, RANKS)), 2, *words)
    assert not (start.folder / "mistake.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("old, new, words", [
    ("nn.Linear(100, 10)", "nn.Linear(100, 20)", "size mismatch for 9.weight"),
    ("nn.Linear(100, 10)", "nn.Linear(100, 50), nn.Linear(50, 10)", 'Missing key(s) in state_dict: "10.weight"'),
    ("optimizer = torch.optim.SGD(net.parameters()", "optimizer = torch.optim.SGD([{'params': [p]} for p in net.parameters()]",
     "different number of parameter groups"),
])
def test_a_checkpoint_of_another_network_is_told_in_one_line_by_all_ranks(start, changed, trained, old, new, words):
    ended = start.run(2, "2.pt", script=changed({old: new}))
    assert_ends_in_words(ended, 2, words, f"{start.folder / '2.pt'} is of a different network (delete or rename it): ")
    # without a network PyTorch adds warnings of its own
    assert len([line for line in ended[1].splitlines() if not line.startswith("[W")]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("has_agent", [True, False])
def test_a_folder_that_not_all_machines_see_ends_all_ranks_in_words(start, changed, has_agent):
    script = changed({}, RANKS + 'os.makedirs(RANK, exist_ok=True)\nos.chdir(RANK)\n')
    lines(start.run(1, f"own{has_agent}.pt", "--epochs", "1"))
    (start.folder / "0").mkdir(exist_ok=True)
    (start.folder / f"own{has_agent}.pt").rename(start.folder / "0" / "own.pt")
    ended = start.run(2, "", "--checkpoint", "own.pt", script=script, has_agent=has_agent)
    assert_ends_in_words(ended, 2, "own.pt has 1 of 5 epochs", "own.pt has 0 of 5 epochs", "rank 0: ", "rank 1: ")


@pytest.mark.slow
def test_a_rank_that_alone_breaks_shows_where_and_ends_all(start, changed):
    script = changed({"make_net().to(device)": 'make_net().to(f"device {RANK}" if RANK == "1" else device)'}, RANKS)
    failed, printed = start.run(2, "breaks.pt", script=script)
    assert failed == 2 and printed.count("Traceback") == 1 and "in train\n" in printed, printed
    assert printed.count("device 1") >= 2 and "\nrank 1: " in f"\n{printed}", printed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.distributed.is_nccl_available(), reason="needs NCCL")
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.gpu(2))])
def test_ranks_with_a_gpu_each_train_as_one_on_the_cpu(ranks, script, data, tmp_path):
    def train(ranks, **variables):
        ended = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
                                f"--nproc-per-node={ranks}", script, "--data", data, "--batch-size", "24", "--epochs", "2",
                                "--checkpoint", tmp_path / f"{' '.join(variables)}.pt"],
                               env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * WAIT_S)
        assert all(f"of {EXAMPLES['t10k']} right" in line for line in lines((ended.returncode, ended.stdout)))
        return ended.stdout, [losses(line) for line in lines((0, ended.stdout))]

    (said, found), (_, expected) = train(ranks, NVIDIA_TF32_OVERRIDE="0"), train(1, CUDA_VISIBLE_DEVICES="")  # all in float32
    assert f", nccl on cuda, ranks {ranks}, " in said
    assert len(found) == 2 and found == pytest.approx(expected, rel=1e-3)
