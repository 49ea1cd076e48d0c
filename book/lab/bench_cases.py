"""The cases that the ranks of a group time, each checked before it is timed.

All ranks go through the same cases in the same order. A case that spans processes is run by all ranks; a case on
virtual devices is run by rank 0 alone, with all the cores of the machine, while the others sleep until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench_report import Times
from d2lpar.collectives import allreduce_blocks, allreduce_naive, allreduce_ring, allreduce_tree
from d2lpar.devices import all_cores, cores_per_device, make_gpus_reproducible, run_on_devices, synchronize, try_devices
from d2lpar.models import LeNet, lenet, lenet_params, loss, resnet18
from d2lpar.scratch import distance, get_params, one_worker, train_batch_threads
from d2lpar.timing import keep_freed_memory, time_each_repeat

RESNET18, SMALL = 11_175_818, 4_096  # float32 values: the gradients of ResNet-18 with ten classes, and 16 kB
BATCH_SIZE, LR = 256, 0.05
RESNET_BATCH_SIZE, RESNET_REPEATS = 64, 2  # a step takes seconds
SMALL_BATCH_SIZE = 8  # so that sending takes a larger part of a step
CALLS = {"large": 10, "small": 100, "lenet": 8, "resnet": 5, "resnet, batch 8": 5}  # in a block, which is what is timed
ALONE = "nothing exchanged"
BETWEEN_PROCESSES = ("processes", "own buckets", "tensor by tensor", ALONE)  # the cases that need all ranks
ALGORITHMS = {fn.__name__: fn for fn in (allreduce_naive, allreduce_tree, allreduce_ring, allreduce_blocks)}

Case = Callable[[], object]
Makers = Mapping[str, Callable[[], Case]]  # by name, what makes a case, runs it once and checks its result
Step = tuple[Case, Sequence[Sequence[Tensor]]]  # a training step, and every replica that it updates


class WrongResult(Exception):
    """A case computes something else than it should: its time would mean nothing."""


def measure(rank: int, parts: Sequence[str], repeats: int, cores: int, turn: int = 0) -> tuple[str, dict[str, Times]]:
    """On one rank of a group: its backend, and the seconds of every block of each part's cases; rank 0's count.

    Args:
        parts: which of the parts in `CALLS`.
        cores: the cores of the machine, as the bench itself found them.
        turn: which case between processes is the first.

    Raises:
        WrongResult: if a case computes something wrong; its part is not timed, and there is no result.
    """
    k = dist.get_world_size()
    if cores != all_cores():
        raise RuntimeError(f"this rank has {all_cores()} cores for its virtual devices, the machine {cores}")
    keep_freed_memory()
    torch.set_num_threads(1)  # for the rank's own work; virtual devices have threads of their own
    torch.manual_seed(0)
    make_gpus_reproducible()
    meet = partial(dist.barrier, dist.new_group(backend="gloo"))  # NCCL's barrier would keep a GPU busy

    def sleep_until_all_are_done() -> None:
        synchronize([devices_of(k)[rank]])
        meet()

    makers = {"large": partial(allreduce_cases, rank, k, RESNET18), "lenet": partial(lenet_cases, rank, k),
              "small": partial(allreduce_cases, rank, k, SMALL),
              "resnet": partial(resnet_cases, rank, k, RESNET_BATCH_SIZE),
              "resnet, batch 8": partial(resnet_cases, rank, k, SMALL_BATCH_SIZE)}
    result = {}
    for part in parts:
        times, warmup = (min(RESNET_REPEATS, repeats), 1) if part == "resnet" else (repeats, 2)
        cases, devices = on_this_rank(rank, makers[part]()), devices_of(k) if rank == 0 else ()
        time_each_repeat(cases, 0, warmup, devices, sleep_until_all_are_done)
        result[part] = time_in_turns(in_blocks(cases, CALLS[part], sleep_until_all_are_done), times, devices,
                                     sleep_until_all_are_done, turn)
        if rank == 0:
            print(f"{part} done")
    return dist.get_backend(), result


def in_blocks(cases: Mapping[str, Case], calls: int, wait: Case) -> dict[str, Case]:
    """Each case so many times in a row, as in training; where nothing is exchanged, until the slowest rank is done."""
    def block(name: str) -> None:
        for _ in range(calls):
            cases[name]()
        if name == ALONE:
            wait()

    return {name: partial(block, name) for name in cases}


def devices_of(k: int) -> list[torch.device]:
    """k devices; in ranks that have no GPU each, virtual ones on the CPU, so that both sides of a row have the same."""
    by_gloo = dist.is_initialized() and dist.get_backend() == "gloo"
    return [torch.device("cpu")] * k if by_gloo else try_devices(k)


def time_in_turns(cases: Mapping[str, Case], repeats: int, devices: Sequence[torch.device], before: Case,
                  turn: int = 0) -> Times:
    """As `time_each_repeat`; the cases between processes take turns to be the first, which comes after a sleep."""
    times: Times = {name: [] for name in cases}
    between = [name for name in BETWEEN_PROCESSES if name in cases]
    for round_ in range(turn, turn + repeats):
        first = round_ % len(between)
        order = dict.fromkeys([*between[first:], *between[:first], *cases])
        seconds = time_each_repeat({name: cases[name] for name in order}, 1, 0, devices, before)
        for name in cases:
            times[name] += seconds[name]
    before()  # or the other ranks go on to the next part, on cores that the last case is timed on
    return times


def on_this_rank(rank: int, makers: Makers) -> dict[str, Case]:
    """The cases that `rank` runs: all of them on rank 0, elsewhere only what needs all processes."""
    return {name: make() if rank == 0 or name in BETWEEN_PROCESSES else _nothing for name, make in makers.items()}


def allreduce_cases(rank: int, k: int, numel: int) -> Makers:
    """Allreduce of `numel` float32, by each algorithm and between the processes, and one pass in place.

    The pass reads and writes all k buffers once, as an allreduce in one memory would that did nothing twice.
    """
    devices, pattern = devices_of(k), _pattern(numel)

    @cache
    def buffers() -> list[Tensor]:
        return [torch.empty(numel, device=device) for device in devices]

    def processes() -> Case:
        own = (pattern * 2**rank).to(devices[rank])
        dist.all_reduce(own)
        expect_sum("all_reduce between the processes", [own], k)
        return partial(dist.all_reduce, own.zero_())  # zeros, so that no sum grows to infinity

    def algorithm(name: str) -> Case:
        for r, x in enumerate(buffers()):
            x.copy_(pattern).mul_(2**r)
        ALGORITHMS[name](buffers())
        expect_sum(name, buffers(), k)
        for x in buffers():
            x.zero_()
        return partial(ALGORITHMS[name], buffers())

    def one_pass() -> Case:
        shares = list(zip(*(x.tensor_split(min(k, all_cores())) for x in buffers())))
        return partial(run_on_devices, _pass, shares)

    return {"processes": processes, **{name: partial(algorithm, name) for name in ALGORITHMS}, "one pass": one_pass}


def lenet_cases(rank: int, k: int) -> Makers:
    """One step of LeNet: a plain loop, one device, one with all cores, k devices, and between processes.

    The processes take DistributedDataParallel's step, or each its own, of its shard.
    """
    X, y = _minibatch(BATCH_SIZE)
    expected, of_shard = (one_worker(*batch, [p.requires_grad_() for p in lenet_params()], LR)
                          for batch in ((X, y), _shard(X, y, rank, k)))
    steps = {"processes": partial(ddp_step, LeNet(), X, y, rank, k), "plain loop": partial(plain_step, X, y),
             "1 device": partial(device_step, X, y, 1), "k devices": partial(device_step, X, y, k),
             "1 device, all cores": partial(device_step, X, y, 1, all_cores())}
    alone = partial(_module_step, LeNet().to(devices_of(k)[rank]), *_shard(X, y, rank, k))
    return {**{name: partial(_checked_step, f"LeNet by {name}", step, expected) for name, step in steps.items()},
            ALONE: partial(_checked_step, f"LeNet by {ALONE}", alone, of_shard)}


def resnet_cases(rank: int, k: int, batch_size: int) -> dict[str, Callable[[], Case]]:
    """One step of ResNet-18: one device, one with all cores, k devices, and between processes four ways.

    With k replicas, BatchNorm sees shards, so k devices are held against the processes, and one device against a plain
    loop. A small batch is not tried on k devices.
    """
    X, y = _minibatch(batch_size)
    step, [alone] = _module_step(_resnet(), X, y)
    step()
    sharded: list[Tensor] = []

    def processes() -> Case:
        case, replicas = ddp_step(_resnet(), X, y, rank, k)
        case()
        sharded.extend(p.detach().clone() for p in replicas[0])
        return case

    def devices(name: str, expected: Sequence[Tensor], count: int, cores: int = 1) -> Case:
        return _checked_step(f"ResNet-18 by {name}", partial(resnet_step, X, y, count, cores), expected, 1e-3)

    def own(name: str) -> Case:
        return _checked_step(f"ResNet-18 by {name}", partial(resnet_own_step, name, X, y, rank, k), sharded, 1e-3)

    makers = {"processes": processes, "own buckets": partial(own, "own buckets"),
              "tensor by tensor": partial(own, "tensor by tensor"), "1 device": partial(devices, "1 device", alone, 1),
              "k devices": partial(devices, "k devices", sharded, k),
              "1 device, all cores": partial(devices, "1 device, all cores", alone, 1, all_cores()),
              ALONE: lambda: _module_step(_resnet().to(devices_of(k)[rank]), *_shard(X, y, rank, k))[0]}
    if batch_size == SMALL_BATCH_SIZE:
        del makers["k devices"]
    return makers


def _checked_step(name: str, make: Callable[[], Step], expected: Sequence[Tensor], tolerance: float = 1e-4) -> Case:
    case, replicas = make()
    case()
    expect_replicas(name, replicas, expected, tolerance)
    return case


def plain_step(X: Tensor, y: Tensor) -> Step:
    """Training as it was before this book: one thread, one set of parameters."""
    [device] = devices_of(1)
    params = [p.to(device).requires_grad_() for p in lenet_params()]

    def step() -> None:
        loss(lenet(X.to(device), params), y.to(device)).sum().backward()
        with torch.no_grad():
            for p in params:
                grad = p.grad
                assert grad is not None  # `backward` has just made it
                p -= LR / len(X) * grad
                grad.zero_()

    return step, [params]


def device_step(X: Tensor, y: Tensor, k: int, cores: int = 1) -> Step:
    """`train_batch_threads` on k devices of so many cores each."""
    devices = devices_of(k)
    replicas = [get_params(lenet_params(), device) for device in devices]

    def step() -> None:
        with cores_per_device(cores):
            train_batch_threads(X, y, replicas, devices, LR)

    return step, replicas


def ddp_step(net: nn.Module, X: Tensor, y: Tensor, rank: int, k: int) -> Step:
    """PyTorch's own: this rank's shard, through DistributedDataParallel."""
    net = nn.parallel.DistributedDataParallel(net.to(devices_of(k)[rank]))
    net.broadcast_buffers = False  # as ours: the statistics of BatchNorm are sent at the start, and not in every step
    return _module_step(net, *_shard(X, y, rank, k))


def _module_step(net: nn.Module, X: Tensor, y: Tensor, after: Callable[[], object] = lambda: None) -> Step:
    """The loop that everyone writes, around any module; `after` comes after backward."""
    device = next(net.parameters()).device
    optimizer, criterion = torch.optim.SGD(net.parameters(), LR), nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        criterion(net(X.to(device)), y.to(device)).backward()
        after()
        optimizer.step()

    return step, [list(net.parameters())]


def resnet_step(X: Tensor, y: Tensor, k: int, cores: int = 1) -> Step:
    """ResNet-18 on k devices of so many cores each, through the book's DataParallel."""
    from d2lpar.data_parallel import DataParallel

    devices = devices_of(k)
    step, replicas = _module_step(DataParallel(_resnet().to(devices[0]), devices), X, y)

    def with_cores() -> None:
        with cores_per_device(cores):
            step()

    return with_cores, replicas


def resnet_own_step(name: str, X: Tensor, y: Tensor, rank: int, k: int) -> Step:
    """ResNet-18 through the book's own buckets, or with its gradients averaged one by one; this rank's shard."""
    from d2lpar.ddp import OwnDDP, average_gradients, broadcast_start

    net, shard = _resnet().to(devices_of(k)[rank]), _shard(X, y, rank, k)
    if name == "own buckets":
        return _module_step(OwnDDP(net), *shard)
    broadcast_start(net)
    return _module_step(net, *shard, partial(average_gradients, net))


def _resnet() -> nn.Module:
    torch.manual_seed(0)
    return resnet18(10)


def _minibatch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(size, 1, 28, 28, generator=generator), torch.randint(10, (size,), generator=generator)


def _shard(X: Tensor, y: Tensor, rank: int, k: int) -> tuple[Tensor, Tensor]:
    return X.tensor_split(k)[rank], y.tensor_split(k)[rank]  # of one size: DDP gives every shard one weight


def expect_sum(name: str, data: Sequence[Tensor], k: int) -> None:
    """Raise WrongResult unless each of `data` is the sum of `pattern * 2**r` over k ranks, which float32 holds exactly.

    No other choice of addends has that sum.
    """
    for rank, x in enumerate(data):
        if not torch.equal(x.cpu(), _pattern(len(x)) * (2**k - 1)):
            raise WrongResult(f"{name} leaves a wrong sum in buffer {rank} of {len(data)}")


def expect_replicas(name: str, replicas: Sequence[Sequence[Tensor]], expected: Sequence[Tensor],
                   tolerance: float = 1e-4) -> None:
    """Raise WrongResult unless every replica is, after one step, what one worker has, up to rounding."""
    if not replicas:
        raise WrongResult(f"{name} left no replicas")
    for rank, params in enumerate(replicas):
        if not (far := distance(params, expected)) <= tolerance:
            raise WrongResult(f"after a step of {name}, replica {rank} is {far:.1e} away from what it should be")


@cache
def _pattern(numel: int) -> Tensor:
    return torch.arange(numel, dtype=torch.float32).remainder_(1009)


def _pass(share: Sequence[Tensor]) -> None:
    for x in share:
        x.mul_(1.0)


def _nothing() -> None:
    """What a rank other than 0 does while rank 0 works on virtual devices."""
