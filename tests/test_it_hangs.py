"""What the checklist and the page on production say of PyTorch, where "tried" is said and no chapter shows it."""

import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _dump_fr_trace
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.nn.parallel import DistributedDataParallel

from d2lpar._rank import loopback
from d2lpar.launch import RankGroup
from d2lpar.scratch import distance

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_core"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def ranks():
    with RankGroup(2, "gloo") as group:
        yield group


def in_another_order(rank):
    a, b = torch.tensor([1.0]), torch.tensor([10.0])
    for x in (a, b) if rank == 0 else (b, a):
        dist.all_reduce(x)
    return a.item(), b.item()


def crossed(rank):
    a, b = torch.tensor([1.0]), torch.tensor([10.0])
    calls = [lambda: dist.all_reduce(a), lambda: dist.broadcast(b, src=0)]
    with pytest.raises(RuntimeError, match="Detected mismatch between collectives"):
        for call in calls if rank == 0 else calls[::-1]:
            call()
    return True


def test_two_sums_in_another_order_are_mixed_up_and_only_kinds_are_checked(ranks, monkeypatch):
    assert ranks.run(in_another_order) == [(11.0, 11.0)] * 2
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    with RankGroup(2, "gloo") as checked:
        assert checked.run(in_another_order) == [(11.0, 11.0)] * 2
        assert checked.run(crossed, timeout_s=60) == [True] * 2


def who_is_missing(rank):
    group = dist.new_group()
    if rank == 1:
        return None
    with pytest.raises(RuntimeError) as error:
        dist.monitored_barrier(group, timeout=timedelta(seconds=1))
    return str(error.value)


def test_a_monitored_barrier_names_the_rank_that_did_not_come():
    with RankGroup(2, "gloo") as ranks:
        assert "Rank 1 failed to pass monitoredBarrier in 1000 ms" in ranks.run(who_is_missing)[0]


def recorded(rank):
    dist.all_reduce(torch.zeros(3))
    last = pickle.loads(_dump_fr_trace())["entries"][-1]
    return last["profiling_name"], last["input_sizes"], any(frame["name"] == "recorded" for frame in last["frames"])


def test_the_flight_record_is_on_without_any_setting(ranks):
    assert ranks.run(recorded) == [("gloo:all_reduce", [[3]], True)] * 2


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).double()


def examples(rank):
    return torch.randn(12, 4, generator=torch.Generator().manual_seed(rank)).double()


def loss_of_two_calls(net, X):
    return net(X[:6]).mean() + net(X[6:]).square().mean()


def gradients(net, loss):
    return torch.autograd.grad(loss, [p for p in net.parameters()])


def twice_forward(rank):
    net = make_net()
    wrapped = DistributedDataParallel(net)  # without this name it would be gone before the backward pass, and its sum too
    loss_of_two_calls(wrapped, examples(rank)).backward()
    right = [torch.stack(both).mean(0) for both in zip(*(gradients(alone, loss_of_two_calls(alone, examples(r)))
                                                         for r in range(2) for alone in [make_net()]))]
    return distance([p.grad for p in net.parameters()], right)


def test_two_forward_passes_before_one_backward_pass_are_right_on_cpus(ranks):
    assert max(ranks.run(twice_forward)) <= 1e-12


def wait_no_longer(group):
    """From here on; to start can take longer, where the machine is busy."""
    dist.barrier(group)
    dist.set_timeout(timedelta(seconds=5), group)


def used_on_rank_0_alone(rank):
    net = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    net.forward = lambda x: net[0](x) + net[1](x) if rank == 0 else net[0](x)
    model, seen = DistributedDataParallel(net, process_group=(group := dist.new_group())), []
    wait_no_longer(group)
    try:
        for _ in range(2):
            model(torch.ones(1, 1)).backward()
            seen.append("a step")
    except RuntimeError as error:
        seen.append(str(error))
    return seen


@pytest.mark.slow
def test_a_rank_that_alone_uses_a_part_waits_in_the_first_backward_and_the_others_stop_in_the_second_step():
    with RankGroup(2, "gloo") as ranks:
        (waits,), (step, stops) = ranks.run(used_on_rank_0_alone)
    assert "Timed out" in waits and step == "a step" and "Expected to have finished reduction" in stops


def killed_while(taking_part, rank, file, told):
    """Rank 1 stands still, before or after it is ready to receive; rank 0 begins to send, and then kills it."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    dist.init_process_group("gloo", store=dist.FileStore(file, 2), rank=rank, world_size=2)
    x, pids = torch.zeros(25_000_000), [None, None]  # 100 MB, more than the connection holds
    dist.all_gather_object(pids, os.getpid())
    wait_no_longer(dist.group.WORLD)
    if rank == 1 and taking_part:
        dist.broadcast(x, 0, async_op=True)
        time.sleep(2)  # by then gloo's thread has said that this rank is ready
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    while psutil.Process(pids[1]).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    threading.Timer(1, os.kill, (pids[1], signal.SIGKILL)).start()
    try:
        dist.broadcast(x, 0)
        told.put("nothing")
    except RuntimeError as error:
        told.put(f"{psutil.Process(pids[1]).status()}: {error}")
    os._exit(0)  # leaving a broken group in order may abort


@pytest.mark.parametrize("taking_part, words", [(False, "Connection (closed|reset) by peer"), (True, "zombie: .*Timed out waiting 5000ms for send")])
def test_a_kill_is_noticed_at_once_unless_the_rank_was_receiving_a_large_tensor(tmp_path, taking_part, words):
    context = multiprocessing.get_context("spawn")
    told, store = context.SimpleQueue(), str(tmp_path / "store")
    both = [context.Process(target=killed_while, args=(taking_part, rank, store, told)) for rank in range(2)]
    try:
        for process in both:
            process.start()
        both[0].join(60)
        both[1].join(10)
        codes = [process.exitcode for process in both]
    finally:
        for process in both:
            process.kill()
            process.join()
    assert codes == [0, -signal.SIGKILL] and re.search(words, told.get())


def evaluates_alone(rank, wrapped):
    model = DistributedDataParallel(nn.BatchNorm1d(1), process_group=(group := dist.new_group()))
    for _ in range(3):
        model(torch.ones(4, 1)).sum().backward()
    wait_no_longer(group)
    try:
        if rank == 0:
            with torch.no_grad():
                (model if wrapped else model.module)(torch.ones(4, 1))
        dist.barrier(group)
    except RuntimeError:
        return "time is up"
    return "met"


@pytest.mark.slow
def test_what_rank_0_sends_in_an_evaluation_of_its_own_meets_nobody():
    with RankGroup(2, "gloo") as ranks:
        assert ranks.run(evaluates_alone, False) == ["met"] * 2
    with RankGroup(2, "gloo") as ranks:
        assert ranks.run(evaluates_alone, True) == ["time is up"] * 2


@pytest.mark.parametrize("unscaled", [True, False])
def test_only_after_unscaling_is_the_gradient_clipped_and_not_the_scaled_one(unscaled):
    net, X = make_net()[:1], examples(0)
    norm = torch.cat([g.flatten() for g in gradients(net, net(X).square().mean())]).norm()
    sgd, scaler = torch.optim.SGD(net.parameters(), lr=1.0), torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = net[0].weight.detach().clone()
    scaler.scale(net(X).square().mean()).backward()
    if unscaled:
        scaler.unscale_(sgd)
    nn.utils.clip_grad_norm_(net.parameters(), 2 * norm.item())  # a bound that it does not reach
    scaler.step(sgd)
    moved = (before - net[0].weight).norm()
    torch.testing.assert_close(moved, (norm if unscaled else 2 * norm / 1024).to(moved.dtype), rtol=1e-5, atol=0)


def with_the_smallest_number(rank):
    net, shards = make_net()[:1], examples(0).split(2)
    model, minibatches = DistributedDataParallel(net), shards[rank::2][:3 - rank]
    number = torch.tensor(len(minibatches))
    dist.all_reduce(number, op=dist.ReduceOp.MIN)
    for X in minibatches[:number]:
        n = torch.tensor(len(X))
        dist.all_reduce(n)  # in the loss, which waits for ever inside Join
        (model(X).square().sum() * 2 / n).backward()
    return number.item(), [p.grad for p in net.parameters()]


def test_ranks_that_are_cut_to_the_smallest_number_of_minibatches_end_together(ranks):
    (a, first), (b, second) = ranks.run(with_the_smallest_number)
    assert a == b == 2 and distance(first, second) == 0


class WithForward(nn.Module):
    """The same layers; what is a bare Sequential, DDP around it and the compiler around that, is not compiled in 2.15."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*make_net()[::3])

    def forward(self, x):
        return self.layers(x)


def compiled(rank, order, bare=False):
    graphs = []

    def record(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    net = WithForward().layers if bare else WithForward()
    wraps = {"compile": lambda net: torch.compile(net, backend=record), "ddp": DistributedDataParallel}
    wrapped = net
    for name in order:
        wrapped = wraps[name](wrapped)
    wrapped(examples(rank)).square().mean().backward()
    return [p.grad for p in net.parameters()], next(iter(wrapped.state_dict())), len(graphs)


def test_compiling_before_or_after_wrapping_gives_one_gradient_and_other_names(ranks):
    plain, *others = (ranks.run(compiled, order) for order in (["ddp"], ["ddp", "compile"], ["compile", "ddp"]))
    for other in others:
        assert max(distance(a, b) for (a, *_), (b, *_) in zip(plain, other)) <= 1e-12
        assert all(graphs for *_, graphs in other)
    assert [run[0][1] for run in others] == ["_orig_mod.module.layers.0.weight", "module._orig_mod.layers.0.weight"]


def test_a_bare_sequential_is_not_compiled_if_ddp_is_inside_as_the_page_says(ranks):
    assert [graphs for *_, graphs in ranks.run(compiled, ["ddp", "compile"], True)] == [0, 0]


def sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    X, net, alone = examples(0), nn.Sequential(*make_net()[::3]), nn.Sequential(*make_net()[::3])
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(net, mesh=mesh)
    net(X[rank::2]).square().mean().backward()
    found = [p.grad.full_tensor() for p in net.parameters()]
    return distance(found, gradients(alone, alone(X).square().mean())), (
        distribute_tensor(X, mesh, [Shard(0)]).mean().full_tensor() - X.mean()).abs().item()


def test_fully_shard_averages_as_ddp_does_and_the_mean_of_a_dtensor_is_that_of_all(ranks):
    assert max(max(pair) for pair in ranks.run(sharded)) <= 1e-12


def test_a_port_that_is_taken_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(dist.DistNetworkError, match="EADDRINUSE.*address already in use"):
            dist.TCPStore("127.0.0.1", other.getsockname()[1], 1, is_master=True)


FAILS_ONCE = """
import os
import torch.distributed as dist

dist.init_process_group("gloo")
print("<begins>", flush=True)
dist.barrier()
if dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise RuntimeError("a GPU has fallen off the bus")
dist.barrier()
print("<ends>", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.weekly  # of PyTorch's own agents; the chapter on several machines runs two in each run
def test_if_one_rank_fails_the_agents_of_all_machines_start_theirs_again(tmp_path):
    (script := tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--local-addr=127.0.0.1", "--nnodes=2", "--max-restarts=1",
                "--rdzv-id=two", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
    agents = [subprocess.Popen([*torchrun, f"--nproc-per-node={n}", script], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
              for n in (2, 1)]  # rank 1 is one of the two
    try:
        printed = [agent.communicate(timeout=90)[0] for agent in agents]  # Gloo's words can stand in the same line
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait()
    assert [(text.count("<begins>"), text.count("<ends>")) for text in printed] == [(4, 2), (2, 1)], printed


@pytest.fixture
def two_that_are_not_there():
    dist.init_process_group("fake", rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def test_local_tensors_add_up_and_leave_out_what_is_under_rank_0(two_that_are_not_there):
    with LocalTensorMode(2):
        x = LocalTensor({0: torch.tensor([1.0]), 1: torch.tensor([2.0])})
        if dist.get_rank() == 0:
            x = x + 10
        dist.all_reduce(x)
    assert [x._local_tensors[rank].item() for rank in range(2)] == [3.0, 3.0]


def test_types_see_that_nobody_summed_but_not_that_nobody_averaged(two_that_are_not_there):
    spmd = pytest.importorskip("spmd_types")  # 0.3.1
    from spmd_types.checker import typecheck
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = mesh.get_group("dp")

    def update(*how):
        with spmd.set_current_mesh(mesh), typecheck(), torch.enable_grad():
            w, X = torch.randn(3, requires_grad=True), torch.randn(4, 3)
            spmd.assert_type(w, {group: spmd.R})
            spmd.assert_type(X, {group: spmd.V})
            grad, = torch.autograd.grad((X @ w).square().mean(), [w])
            with torch.no_grad():
                if "summed" in how:
                    partial = spmd.reinterpret(grad, group, src=spmd.V, dst=spmd.P)
                    grad = spmd.all_reduce(partial, group, src=spmd.P, dst=spmd.R)
                if "averaged" in how:
                    grad = grad / 2
                spmd.assert_type(w - 0.1 * grad, {group: spmd.R})

    with pytest.raises(spmd.SpmdTypeError):
        update()
    update("summed")
    update("summed", "averaged")
    with spmd.set_current_mesh(mesh), typecheck(local=False):
        X = torch.randn(4, 3)
        spmd.assert_type(X, {group: spmd.S(0)})
        X.sum()
        with pytest.raises(ValueError, match="Only sum-Partial"):
            X.mean()


HANGS = """
import sys, time
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server

dist.init_process_group("gloo")
start_debug_server(port=int(sys.argv[1]), dump_dir="dumps", dump_interval=1.0, enabled_dumps={"stacks"})
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1))  # line 9
else:
    time.sleep(600)  # line 11
"""


@pytest.mark.weekly
def test_the_debug_server_writes_down_where_each_rank_is(tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "hangs.py", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            end = time.monotonic() + 90
            found = ""
            while not ("line 9 in" in found and "line 11 in" in found) and time.monotonic() < end:
                time.sleep(0.5)
                found = "".join(file.read_text("utf8") for file in tmp_path.glob("dumps/stacks_*.txt"))
        finally:
            for process in [*psutil.Process(run.pid).children(recursive=True), run]:  # the ranks and the server, and torchrun
                process.kill()
    assert "hangs.py\", line 9 in" in found and "hangs.py\", line 11 in" in found, found
