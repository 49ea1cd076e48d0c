"""Watches scripts in copies of this process, which has loaded PyTorch already: a tenth of the time."""

import os
import random
import sys
import traceback

import numpy as np
import torch
import torch._dynamo  # every optimizer loads it

from d2lpar.diagnosis import watching
from d2lpar.diagnosis.scripts import Run


class Forked:
    """As subprocess.Popen, as far as `watch` needs it."""

    def __init__(self, words, env, output):
        self.returncode = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(words, env, output)

    def _run(self, words, env, output):
        code = 1
        try:
            os.setsid()
            os.environ.clear()
            os.environ.update(env)
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1), os.dup2(file, 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            torch.set_num_threads(1), torch.seed(), random.seed(), np.random.seed()
            try:
                watching.run_script(words)
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
            except BaseException:
                traceback.print_exc()
            for watcher in watching.watchers:
                watcher.end("")
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(int(code))

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def start(run, words, env, rank):
    """In place of `Run.start_rank`."""
    words = [word.replace("{rank}", str(rank)) for word in words]
    run.processes.append(Forked(words, dict(env), str(run.folder / f"{rank}.output")))
    run.reaper.stdin.write(b"%d\n" % run.processes[-1].pid)


FRESH = Run.start_rank


def install(forks=True):
    """Let `watch` start ranks as forks from now on, in this process; or as fresh processes again."""
    setattr(Run, "start_rank", start if forks else FRESH)  # noqa: B010
