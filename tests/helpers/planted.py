"""Runs scripts of the projects on ranks that are copies of this process, which has loaded PyTorch already.

It is given a list of tasks in JSON, and prints a list of results: for ["watch", K, SCRIPT] what `watch` says, and for
["run", K, SCRIPT, OPTIONS ...] what the script prints on K ranks, started as torchrun would.
"""

import json
import os
import runpy
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

import forked
from d2lpar.diagnosis.scripts import watch
from helpers.ports import free_port


def run(k: int, *words: str) -> str:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()), WORLD_SIZE=str(k))
    with tempfile.TemporaryFile("w+") as output:
        ranks = []
        for rank in range(k):
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    os.dup2(output.fileno(), 1)
                    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
                    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
                    torch.set_num_threads(1)
                    sys.argv, sys.path[0] = list(words), str(Path(words[0]).parent.resolve())
                    runpy.run_path(words[0], run_name="__main__")
                    code = 0
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            ranks.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        output.seek(0)
        assert not any(codes), (words, codes, output.read())
        return output.read()


def watched(k: int, script: str, *options: str) -> dict[str, Any]:
    found = watch([script, *options], k)
    return {"faults": list(found.faults), "notes": list(found.notes), "exit": found.exit_code}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    forked.install()
    print(json.dumps([{"watch": watched, "run": run}[what](*words) for what, *words in json.loads(sys.argv[1])]))
