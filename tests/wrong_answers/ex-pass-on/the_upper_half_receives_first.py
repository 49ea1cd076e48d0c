"""The message in the midst goes first, and all others wait for it in turn."""


def pass_on(x, rank, k, send, recv):
    if rank >= k // 2:
        arrived = recv((rank - 1) % k)
        send(x, (rank + 1) % k)
        return arrived
    send(x, (rank + 1) % k)
    return recv((rank - 1) % k)
