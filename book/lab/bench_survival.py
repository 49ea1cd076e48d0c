"""The cases of a run that survives failures: an epoch with and without checkpoints, and a rank that is killed."""

from __future__ import annotations

import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench_cases import WrongResult
from bench_report import Times
from d2lpar import train_ddp
from d2lpar.checkpoints import save_checkpoint
from d2lpar.pages.kill_tests import Kill, agent, differing, kill_test, updates
from d2lpar.timing import time_each_repeat


def checkpoint_times(repeats: int) -> Times:
    """Seconds of an epoch of `train_ddp.py` on one rank, batch 256: with a checkpoint after it, and bare."""
    with tempfile.TemporaryDirectory() as folder:
        args, device = train_ddp.read_options(["--batch-size=256"]), train_ddp.join()
        try:
            net = DistributedDataParallel(train_ddp.make_net().to(device))
            optimizer = torch.optim.AdamW(net.parameters())
            data, plan = train_ddp.agree(args, net.module, device)
            train_set, _ = data
            last = len(train_set[1]) // args.batch_size

            def epoch() -> None:
                for step in range(last):
                    X, y = train_ddp.minibatch(train_set, step, args)
                    train_ddp.update(net, optimizer, X, y, step, args, lambda: False)

            def saved() -> None:
                epoch()
                save_checkpoint(folder, last, train_ddp.state_of(net, optimizer, last, plan))

            return time_each_repeat({"saved": saved, "bare": epoch}, repeats)
        finally:
            dist.destroy_process_group()


def restart_times(repeats: int) -> Times:
    """Seconds from a rank that is killed to the next update, and from the start of torchrun to the first one.

    Raises:
        WrongResult: if the end has other bits than that of an uninterrupted run.
    """
    times: Times = {"killed": [], "started": []}
    with tempfile.TemporaryDirectory() as folder:
        uninterrupted = kill_test(f"{folder}/uninterrupted")
        for repeat in range(repeats):
            killed = kill_test(f"{folder}/{repeat}", kills=[Kill(7 + 5 * repeat, 1)])
            if odd := differing(killed.state, uninterrupted.state):
                raise WrongResult(f"a restarted run differs in {odd}")
            times["killed"] += killed.recovered_s
            start, running = time.monotonic(), agent(f"{folder}/first {repeat}")
            while not updates(f"{folder}/first {repeat}") and running.poll() is None:
                time.sleep(0.01)
            times["started"].append(time.monotonic() - start)
            running.terminate()
            running.wait()
    return times
