"""A switch in Python, which does what the kernel's cannot: it delays packets, and drops some.

It reads `plug HOST` and `set HOST SECONDS SHARE` from stdin and ends when stdin ends. The kernel still sets the rate.
"""

import collections
import random
import select
import socket
import sys
import time

OUTGOING, BROADCAST, PACKET, VNET_HDR, ALL_PROTOCOLS = 4, 255, 263, 15, 3  # constants of Linux
HEADER = 10  # bytes that VNET_HDR puts before each frame: checksums and segments stay the kernel's work
ports, delay_s, loss, waiting = {}, {}, {}, {}


def plug(host):
    """Take the place of the switch at a host's link."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    port.setsockopt(PACKET, VNET_HDR, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)  # as much as this machine allows
    port.bind((f"port{host}", 0))
    port.setblocking(False)
    ports[host], delay_s[host], loss[host], waiting[host] = port, 0.0, 0.0, collections.deque()


def receive(host):
    """Take the frames that a host has sent, and let them wait for their receivers."""
    for _ in range(256):
        try:
            frame, sender = ports[host].recvfrom(1 << 17)
        except OSError:  # no more, or the link is unplugged
            return
        if sender[2] == OUTGOING:
            continue
        receiver = frame[HEADER + 5]  # the last byte of its address, 02:00:00:00:00:HOST
        for to in set(ports) - {host} if receiver == BROADCAST else {receiver} & set(ports):
            if random.random() >= loss[to]:
                waiting[to].append((time.monotonic() + delay_s[to], frame))


def send(host):
    """Hand a host the frames whose time has come."""
    queue = waiting[host]
    while queue and queue[0][0] <= time.monotonic():
        try:
            ports[host].send(queue[0][1])
        except BlockingIOError:
            return
        except OSError:  # unplugged
            pass
        queue.popleft()


def main():
    """Pass packets on until stdin ends."""
    while True:
        due = [queue[0][0] for queue in waiting.values() if queue]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        ready = select.select([sys.stdin, *ports.values()], [], [], wait_s)[0]
        for host in [host for host, port in ports.items() if port in ready]:
            receive(host)
        for host in ports:
            send(host)
        if sys.stdin in ready:
            words = sys.stdin.readline().split()
            if not words:
                sys.exit()
            host = int(words[1])
            if words[0] == "plug":
                plug(host)
            else:
                delay_s[host], loss[host] = float(words[2]), float(words[3])
            print("done", flush=True)


if __name__ == "__main__":
    main()
