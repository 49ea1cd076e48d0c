"""The check of the exercise `ex-pass-on`."""

from concurrent.futures import ThreadPoolExecutor
from threading import Condition


class Stuck(Exception):
    """All ranks wait, or have ended, and no message can travel."""


class Ring:
    """Ranks in threads, whose `send` and `recv` wait for each other, and a clock for each: a message takes 1 ms."""

    def __init__(self, k):
        self.clocks_ms, self.messages, self.k = [0] * k, [], k
        self.waiting, self.arrived, self.ended, self.stuck, self.changed = {}, {}, 0, "", Condition()

    def run(self, pass_on, rank):
        """What `pass_on` returns on this rank."""
        def send(x, to):
            self.meet(rank, "send", to, x)

        def recv(source):
            return self.meet(rank, "recv", source)

        try:
            return pass_on(f"x of rank {rank}", rank, self.k, send, recv)
        finally:
            with self.changed:
                self.ended += 1
                self.changed.notify_all()

    def meet(self, rank, what, other, x=None):
        """Block until `other` does its part; what has arrived."""
        part = "recv" if what == "send" else "send"
        with self.changed:
            if self.waiting.get(other, (None,) * 3)[:2] == (part, rank):
                x = x if what == "send" else self.waiting[other][2]
                del self.waiting[other]
                self.messages.append((rank, other) if what == "send" else (other, rank))
                self.clocks_ms[rank] = self.clocks_ms[other] = max(self.clocks_ms[rank], self.clocks_ms[other]) + 1
                self.arrived[other] = x
                self.changed.notify_all()
                return x
            self.waiting[rank] = what, other, x
            self.changed.notify_all()
            while rank in self.waiting:
                if len(self.waiting) + self.ended == self.k and not self.stuck:
                    self.stuck = ", ".join(f"rank {r} in {'send to' if what == 'send' else 'recv from'} rank {other}"
                                           for r, (what, other, _) in sorted(self.waiting.items()))
                    self.changed.notify_all()
                if self.stuck:
                    raise Stuck(self.stuck)
                self.changed.wait()
            return self.arrived.pop(rank)


def check(pass_on):
    """What is not right yet of the answer, in words, or "Right."."""
    for k in range(2, 10):
        ring = Ring(k)
        with ThreadPoolExecutor(k) as threads:
            ranks = [threads.submit(ring.run, pass_on, rank) for rank in range(k)]
        errors = [rank.exception() for rank in ranks if rank.exception()]
        for error in errors:
            if not isinstance(error, Stuck):
                raise error
        if errors:
            return f"Not yet: {k} ranks wait forever, {errors[0]}."
        for rank, given in enumerate(each.result() for each in ranks):
            if given != f"x of rank {(rank - 1) % k}":
                return (f"Not yet: of {k} ranks, rank {rank} must return the x of its left neighbour,\n"
                        f"  and returns {given!r}.")
        if sorted(ring.messages) != sorted((rank, (rank + 1) % k) for rank in range(k)):
            return (f"Not yet: {k} ranks need {k} messages, each to the right neighbour, and these were sent:\n"
                    f"  {ring.messages}.")
        if max(ring.clocks_ms) > 3:
            return f"Not yet: {k} ranks are done after {max(ring.clocks_ms)} ms. How many messages travel at once?"
    return "Right."
