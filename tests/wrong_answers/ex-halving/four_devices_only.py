"""Right for four devices, and written down for them: with others this raises."""

from d2lpar.sums.messages import exchange


def allreduce_halving(data):
    halves = [x.tensor_split(2) for x in data]
    exchange(halves, [(0, 1, 1), (1, 0, 0), (2, 3, 1), (3, 2, 0)], add=True)
    quarters = [half[rank % 2].tensor_split(2) for rank, half in enumerate(halves)]
    exchange(quarters, [(0, 2, 1), (2, 0, 0), (1, 3, 1), (3, 1, 0)], add=True)
    exchange(quarters, [(0, 2, 0), (2, 0, 1), (1, 3, 0), (3, 1, 1)], add=False)
    exchange(halves, [(0, 1, 0), (1, 0, 1), (2, 3, 0), (3, 2, 1)], add=False)
