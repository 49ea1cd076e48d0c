"""Asks the neighbour first whether it is ready: a message more for each."""


def pass_on(x, rank, k, send, recv):
    right, left = (rank + 1) % k, (rank - 1) % k
    if rank % 2 == 0:
        recv(right)
        send(x, right)
        send("ready", left)
        return recv(left)
    send("ready", left)
    arrived = recv(left)
    recv(right)
    send(x, right)
    return arrived
