"""A JupyterLab that runs for the time of a test."""

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from helpers.ports import free_port

TOKEN = "token=t"


@contextmanager
def jupyterlab(command: list[str], top: Path, settings: Path) -> Iterator[str]:
    """Its address, as soon as it answers. The command is started in `top`; afterwards none of its processes is left."""
    port, log = free_port(), settings / "log"
    address = f"http://127.0.0.1:{port}"
    options = ["--no-browser", f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.{TOKEN}"]
    with log.open("w") as said:
        server = psutil.Popen([*command, *options], cwd=top, env=os.environ | environment(settings),
                              stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()
            with suppress(OSError):
                fetch(f"{address}/api?{TOKEN}")
                break
            time.sleep(0.1)
        yield address
    finally:
        processes = [server, *server.children(recursive=True)] if server.poll() is None else []
        for process in processes:  # one by one, as each kernel has a session of its own
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 10)


def environment(settings: Path) -> dict[str, str]:
    """Variables that let Jupyter keep its settings, and what it trusts, in this folder."""
    return {f"JUPYTER_{part}_DIR": str(settings / part) for part in ("CONFIG", "DATA")}


def fetch(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know this machine's ports
    with opener.open(address, timeout=60) as answer:
        return answer.read().decode()
