"""Ports for servers that are told theirs before they start.

A program that asks the system for any port gets one above 30,000, unless the system is set up differently. These are
below, so no other program gets one by chance before its server has it.
"""

import errno
import itertools
import os
import random
import socket

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))  # each has ports of its own
_ports = itertools.count(10_000 + (1_000 * _worker + random.randrange(500)) % 20_000)


def free_port() -> int:
    """A port of this machine that nobody has, and no other call of this run gets."""
    while True:
        try:
            with socket.create_server(("127.0.0.1", port := next(_ports))):
                return port
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
