def all_receive_first(x, rank, k, send, recv):
    """The same deadlock, with the two lines turned round."""
    arrived = recv((rank - 1) % k)
    send(x, (rank + 1) % k)
    return arrived


def by_arithmetic(x, rank, k, send, recv):
    """Knows what must come, and sends nothing."""
    return f"x of rank {(rank - 1) % k}"


def for_even_numbers_only(x, rank, k, send, recv):
    """With an odd number of ranks the last one waits for rank 0, which has gone."""
    if rank % 2 == 0:
        if rank < k - 1:
            send(x, rank + 1)
        return recv((rank - 1) % k)
    arrived = recv(rank - 1)
    send(x, (rank + 1) % k)
    return arrived


def gives_its_own(x, rank, k, send, recv):
    """Returns what it has sent."""
    right, left = (rank + 1) % k, (rank - 1) % k
    if rank % 2 == 0:
        send(x, right)
        recv(left)
    else:
        recv(left)
        send(x, right)
    return x


def one_word_more(x, rank, k, send, recv):
    """Asks the neighbour first whether it is ready: a message more for each."""
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


def rank_0_receives_first(x, rank, k, send, recv):
    """No deadlock, but one message after the other."""
    if rank == 0:
        arrived = recv(k - 1)
        send(x, 1 % k)
        return arrived
    send(x, (rank + 1) % k)
    return recv(rank - 1)


def the_upper_half_receives_first(x, rank, k, send, recv):
    """The message in the midst goes first, and all others wait for it in turn."""
    if rank >= k // 2:
        arrived = recv((rank - 1) % k)
        send(x, (rank + 1) % k)
        return arrived
    send(x, (rank + 1) % k)
    return recv((rank - 1) % k)


def to_the_left(x, rank, k, send, recv):
    """Safe and quick, the wrong way round."""
    if rank % 2 == 0:
        send(x, (rank - 1) % k)
        return recv((rank + 1) % k)
    arrived = recv((rank + 1) % k)
    send(x, (rank - 1) % k)
    return arrived
