"""Kill tests: ranks of `train_ddp.py` under `torchrun` are killed in the middle of a run. What is left?

`python -m d2lpar.pages.kill_tests 50 --ranks 3` does this fifty times, at random steps, and compares all bits with
those of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path

from d2lpar._rank import loopback
from d2lpar.checkpoints import newest_checkpoint
from d2lpar.cluster import Cluster
from d2lpar.scratch import equal_bits

SCRIPT = Path(__file__).parents[1] / "train_ddp.py"
OPTIONS = ("--epochs=2", "--save-every=5")  # 56 updates


class Kill(NamedTuple):
    """Send rank `rank` a signal once the run has made `step` updates, or once it has resumed after that."""

    step: int
    rank: int
    signal: int = signal.SIGKILL


class PowerOff(NamedTuple):
    """Switch a host of the cluster off when the run has made `step` updates, and on again once rank 0 has noticed."""

    step: int
    host: int = 1


class Ended(NamedTuple):
    """How a run ended, whether or not ranks were killed."""

    status: int  # the agent's
    log: str
    state: Any  # of the last checkpoint
    recovered_s: list[float]  # from each kill to the first new update
    noticed_s: list[float]  # on a cluster: from each kill until rank 0 says that it has lost contact


def agent(folder: str | Path, *options: str, ranks: int = 2, restarts: int = 3,
          torchrun: Sequence[str] = ("--standalone",), script: Path = SCRIPT,
          host: tuple[Cluster, int] | None = None) -> subprocess.Popen:
    """Start `torchrun ... train_ddp.py` with checkpoints, metrics and log in `folder`, here or on a cluster's host."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(script, f"{folder}/copy-{os.getpid()}")  # as a reader runs it, outside the package
    os.replace(copy, program := f"{folder}/{Path(script).name}")  # at once: ranks may be starting from it
    variables = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                 "GLOO_SOCKET_IFNAME": "eth0" if host else loopback()}
    words = [sys.executable, "-m", "torch.distributed.run", *torchrun, f"--nproc-per-node={ranks}",
             f"--max-restarts={restarts}", f"--log-dir={folder}/torchrun",  # or it would leave a folder of its own
             program, *OPTIONS, f"--checkpoints={folder}", *options]
    with open(f"{folder}/log", "ab") as log:
        if host is None:
            return subprocess.Popen(words, env=os.environ | variables, stdout=log, stderr=log)
        return host[0].popen(host[1], *words, env=os.environ | variables, stdout=log, stderr=log)


def updates(folder: str | Path) -> int:
    """How many updates the run in `folder` has made, according to its metrics."""
    with suppress(FileNotFoundError):
        if steps := re.findall(r'^{"step": (\d+),.*}$', Path(folder, "metrics.jsonl").read_text(), re.M):
            return int(steps[-1])
    return 0


def rank_of(running: subprocess.Popen, rank: int) -> psutil.Process:
    """The process of a rank that an agent has started."""
    for child in psutil.Process(running.pid).children(recursive=True):
        with suppress(psutil.Error):
            if child.environ().get("RANK") == str(rank):
                return child
    raise LookupError(f"no rank {rank} is running")


def kill_test(folder: str | Path, *options: str, kills: Sequence[Kill | PowerOff] = (), limit_s: float = 180,
              cluster: Cluster | None = None, **how: Any) -> Ended:
    """Train in `folder` under an `agent`, and kill its ranks as listed, one after the other.

    On a `cluster` each host has an agent and one rank. The agents meet on host 0, whose rank reports what it notices.

    Raises:
        ValueError: if host 0 or its rank is to go, or if there is no cluster whose host could be switched off.
        TimeoutError: if the run has not ended after `limit_s`; the message holds its log.
        RuntimeError: if the run ended before all kills.
    """
    if not cluster and any(isinstance(kill, PowerOff) for kill in kills):
        raise ValueError("only a host of a cluster can be switched off: kill_test(..., cluster=cluster)")
    if cluster and any(kill[1] == 0 for kill in kills):
        raise ValueError(f"rank 0 reports what it notices, so it must stay; got {list(kills)}")
    log = Path(folder, "log")
    end, recovered_s, noticed_s = time.monotonic() + limit_s, [], []
    hosts = len(cluster.hosts) if cluster else 1
    meet = [f"--nnodes={hosts}", "--rdzv-id=kill", "--rdzv-backend=c10d", "--rdzv-endpoint=host0:29400"]
    running: list[subprocess.Popen] = []

    def start(host: int) -> subprocess.Popen:
        if cluster is None:
            return agent(folder, *options, **how)
        return agent(folder, *options, ranks=1, torchrun=meet, host=(cluster, host), **how)

    def wait(until: Callable[[], bool]) -> None:
        while not until() and any(one.poll() is None for one in running):
            if time.monotonic() > end:
                raise TimeoutError(f"not done after {limit_s} s:\n{log.read_text()}")
            time.sleep(0.005)

    def attempts() -> int:
        return len(re.findall(r" ranks?: (?:starting|resuming)", log.read_text()))  # in an attempt's first line

    def losses() -> int:
        return log.read_text().count("rank 0 lost contact")

    try:
        running += [start(host) for host in range(hosts)]
        for kill in kills:
            wait(lambda: updates(folder) >= kill.step)  # noqa: B023
            before, lost, killed = attempts(), losses(), time.monotonic()
            if cluster and isinstance(kill, PowerOff):
                cluster.power_off(kill.host)
                running[kill.host].wait()
            elif isinstance(kill, Kill):
                with suppress(LookupError, psutil.NoSuchProcess):
                    rank_of(running[kill.rank if cluster else 0], kill.rank).send_signal(kill.signal)
            if cluster:
                wait(lambda: losses() > lost)  # noqa: B023
                noticed_s.append(time.monotonic() - killed)
            if cluster and isinstance(kill, PowerOff):
                cluster.power_on(kill.host)
                running[kill.host] = start(kill.host)
            wait(lambda: attempts() > before)  # noqa: B023
            reached = updates(folder)
            wait(lambda: updates(folder) > reached)  # noqa: B023
            if attempts() > before:
                recovered_s.append(time.monotonic() - killed)
            elif running[0].returncode == 0:
                raise RuntimeError(f"ended before it could be killed after step {kill.step}:\n{log.read_text()}")
        wait(lambda: False)
    finally:
        for one in running:
            one.terminate()  # it ends its ranks, too
            one.wait()
    status, state = max(one.returncode for one in running), newest_checkpoint(folder)[1]
    return Ended(status, log.read_text(), state, recovered_s, noticed_s)


def differing(state: Any, other: Any) -> list[str]:
    """Names of what differs between the states of two checkpoints, in at least one bit."""
    ours, theirs = (dict(tree_leaves_with_path(x)) for x in (state, other))
    return [keystr(path) for path in ours.keys() | theirs.keys() if not _same(ours.get(path), theirs.get(path))]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and equal_bits(a, b)
    return type(a) is type(b) and a == b


def main() -> None:
    """`python -m d2lpar.pages.kill_tests N` makes N kill tests, and exits with 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m d2lpar.pages.kill_tests", description=__doc__)
    parser.add_argument("count", type=int, help="how many kill tests")
    parser.add_argument("--ranks", type=int, default=2, help="(2)")
    parser.add_argument("--seed", type=int, default=0, help="for drawing the steps and ranks (0)")
    args, failed = parser.parse_args(), 0
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        uninterrupted = kill_test(f"{folder}/uninterrupted", ranks=args.ranks)
        for number in range(args.count):
            kill = Kill(draw.randrange(1, uninterrupted.state["step"] - 2), draw.randrange(args.ranks))
            done = kill_test(f"{folder}/{number}", ranks=args.ranks, kills=[kill])
            odd = done.status or differing(done.state, uninterrupted.state)
            failed += bool(odd)
            print(f"{number + 1}: rank {kill.rank} killed after step {kill.step}, resumed after "
                  f"{sum(done.recovered_s):.1f} s, {f'DIFFERS in {odd}' if odd else 'the same bits'}", flush=True)
    sys.exit(f"{failed} of {args.count} differ" if failed else None)


if __name__ == "__main__":
    main()
