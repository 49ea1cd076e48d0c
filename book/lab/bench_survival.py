"""The cases of a run that survives failures: an epoch with and without checkpoints, and a rank that is killed."""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO

import torch.distributed as dist

from bench_cases import WrongResult
from bench_report import Times
from d2lpar.pages.kill_tests import Kill, agent, differing, kill_test, updates
from d2lpar.timing import time_each_repeat
from d2lpar.trainer import Training, add_options, check_options, join


def checkpoint_times(repeats: int) -> Times:
    """Seconds of an epoch of LeNet with Adam, batch 256, not evaluated: with a checkpoint behind it, and bare."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    with tempfile.TemporaryDirectory() as folder:
        args = parser.parse_args(["--optimizer=adam", "--lr=0.001", f"--checkpoints={folder}"])
        check_options(args, 0)
        join(args.timeout)
        try:
            with redirect_stdout(StringIO()):
                training = Training(args)

            def epoch() -> None:
                training.step = 0
                for X, y in training.batches():
                    training.take_step(X, y)

            def saved() -> None:
                epoch()
                training.save()

            return time_each_repeat({"saved": saved, "bare": epoch}, repeats)
        finally:
            dist.destroy_process_group()


def restart_times(repeats: int) -> Times:
    """Seconds from a rank that is killed to the next update, and from the start of torchrun to the first one.

    Raises:
        WrongResult: if the end has other bits than that of a run that nobody disturbed.
    """
    times: Times = {"killed": [], "started": []}
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = kill_test(f"{folder}/undisturbed")
        for repeat in range(repeats):
            killed = kill_test(f"{folder}/{repeat}", kills=[Kill(7 + 5 * repeat, 1)])
            if odd := differing(killed.state, undisturbed.state):
                raise WrongResult(f"a restarted training differs in {odd}")
            times["killed"] += killed.recovered_s
            start, running = time.monotonic(), agent(f"{folder}/first {repeat}")
            while not updates(f"{folder}/first {repeat}") and running.poll() is None:
                time.sleep(0.01)
            times["started"].append(time.monotonic() - start)
            running.terminate()
            running.wait()
    return times
