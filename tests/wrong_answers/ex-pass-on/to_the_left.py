"""Safe and quick, the wrong way round."""


def pass_on(x, rank, k, send, recv):
    if rank % 2 == 0:
        send(x, (rank - 1) % k)
        return recv((rank + 1) % k)
    arrived = recv((rank + 1) % k)
    send(x, (rank - 1) % k)
    return arrived
