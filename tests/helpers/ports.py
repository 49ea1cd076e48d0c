"""Ports for servers that are told theirs before they start.

Whoever asks the system for any port is given one above 30,000, and could be given one of these in the meantime, too,
were they not below it.
"""

import itertools
import os
import socket
from contextlib import suppress

_ports = itertools.count(10_000 + 613 * os.getpid() % 20_000)  # each process of the tests has its own


def free_port() -> int:
    """A port of this machine that nobody has, and no other call in this process gets."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", port := next(_ports))):
            return port
