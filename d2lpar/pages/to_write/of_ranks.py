"""The check of the function of `d2lpar.ranks` that readers write."""

from d2lpar.pages.differences import compare_values


def check_ring_chunks(yours):
    for rank, step, k in ((1, 1, 4), (3, 1, 4), (0, 1, 4), (3, 2, 4), (1, 2, 4), (0, 1, 2), (1, 2, 2), (4, 7, 5), (0, 8, 5)):
        compare_values(yours, f"for rank {rank} of {k} in step {step}", rank, step, k)
    for rank, step, k in ((1, 1, 4), (3, 1, 4), (2, 5, 4)):
        compare_values(yours, f"for rank {rank} of {k} in step {step}, if the chunks go to the left (direction = -1)",
                       rank, step, k, -1)
