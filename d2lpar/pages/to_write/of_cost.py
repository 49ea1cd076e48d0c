"""The checks of the functions of `d2lpar.cost` that readers write. First latency alone, then bytes alone, then both."""

from functools import wraps

from d2lpar.cost import Link
from d2lpar.pages.differences import Difference, call, compare, shown

LINKS = (("alpha = 2 ms and beta = 0", Link(2e-3, 0.0)), ("alpha = 0 and beta = 3 ms per MB", Link(0.0, 3e-9)),
         ("alpha = 2 ms and beta = 3 ms per MB", Link(2e-3, 3e-9)))


def seconds(yours, counts):
    """A function of a size, a number of devices and a link; its result is in seconds."""
    for k in counts:
        for what, link in LINKS:
            compare(yours, f"for 6 MB on {k} device{'s' * (k > 1)}, with {what}", lambda k=k, link=link: (6_000_000, k, link))


def check_naive_s(yours):
    seconds(yours, (2, 5, 1))


def check_tree_s(yours):
    seconds(yours, (2, 8, 5, 1))


def check_ring_s(yours):
    seconds(yours, (2, 5, 1))


def check_halving_s(yours):
    seconds(yours, (2, 8, 1))


def check_fit_link(yours):
    sizes = [1000, 2000, 8000, 20_000, 50_000]

    @wraps(yours)
    def fitted(sizes_bytes, times):
        found = yours(sizes_bytes, times)
        if found is not None and not isinstance(found, Link):
            raise NotALink(found)
        return found

    def on_line(factors):
        return [(0.002 + 3e-6 * n) * factor for n, factor in zip(sizes, factors)]

    for words, chosen, times in (
            ("for messages of 1,000 and 2,000 bytes that took 5 and 8 ms", [1000, 2000], [0.005, 0.008]),
            ("for five times that lie exactly on a line", sizes, on_line([1] * 5)),
            ("if the largest of five messages took 20% longer than on that line", sizes, on_line([1, 1, 1, 1, 1.2])),
            ("if the smallest of five messages took 20% longer than on that line", sizes, on_line([1.2, 1, 1, 1, 1])),
            ("for five times that scatter around that line", sizes, on_line([1, 1.1, 0.9, 1.05, 1]))):
        try:
            call(fitted, words, chosen, times)
            compare(yours, words, lambda chosen=chosen, times=times: (list(chosen), list(times)))
        except Difference as difference:
            text = str(difference)
            if "NotALink" in text:
                text = f"{words}, your function returns {shown(yours(chosen, times))}, but it should return a `Link`."
            raise Difference(text.replace("the result[0]", "alpha_s").replace("the result[1]", "beta_s_per_byte")) from None


class NotALink(Exception):
    """The function has returned something else."""


def check_rounds_s(yours):
    MB, link = 1_000_000, Link(2e-3, 3e-9)
    for words, rounds, *links in (
            ("for one round with one message of 4 MB, alpha = 2 ms, beta = 3 ms per MB and no bus", [[4 * MB]], link),
            ("for two rounds of one message each, of 4 MB and 1 MB, and no bus", [[4 * MB], [MB]], link),
            ("for one round with messages of 1, 4 and 2 MB, and no bus", [[MB, 4 * MB, 2 * MB]], link),
            ("for a round of three messages of 1 MB, and a bus with a latency of 5 ms only", [[MB] * 3], link, Link(5e-3, 0.0)),
            ("for a round of three messages of 1 MB, and a bus that takes 2 ms per MB", [[MB] * 3], link, Link(0.0, 2e-9)),
            ("for a round of messages of 5 and 1 MB, and a bus that takes 2 ms per MB", [[5 * MB, MB]], link, Link(0.0, 2e-9)),
            ("for a round with messages of 5 and 1 MB and one with three of 1 MB, and a bus with 5 ms and 2 ms per MB",
             [[5 * MB, MB], [MB] * 3], link, Link(5e-3, 2e-9)),
            ("for no rounds", [], link)):
        compare(yours, words, lambda rounds=rounds, links=links: (rounds, *links))


def check_efficiency_at(yours):
    one, many = (1, 32, 0.1), (8, 32, 0.15)
    for words, batch, runs, *factor in (
            ("at 32, if a step with 32 examples takes 100 ms on one device and 150 ms on eight", 32, [one, many]),
            ("at 64, with the same two runs", 64, [one, many]),
            ("at 64, with the same two runs in the other order", 64, [many, one]),
            ("at 96, if a step on eight devices takes 150 ms with 32 examples and 250 ms with 64", 96, [many, (8, 64, 0.25)]),
            ("at 64, if the added time is twice as long as in the first two runs", 64, [one, many], 2),
            ("at 64, with a third run on one device, of 210 ms for 64 examples", 64, [one, many, (1, 64, 0.21)])):
        compare(yours, words, lambda batch=batch, runs=runs, factor=factor: (batch, list(runs), *factor))
