"""The checks of the functions of `d2lpar.ways` that readers write."""

from d2lpar.pages.differences import compare


def for_each(yours, *cases):
    """Compare for arguments by name, which are also the words of the case."""
    for case in cases:
        words = ", ".join(f"{name}={value:g}" for name, value in case.items())
        compare(yours, f"for {words}", lambda case=case: tuple(case.values()))


def check_alone_s(yours):
    for_each(yours, {"batch": 1, "flop": 5e9, "flops_per_s": 1e12}, {"batch": 40, "flop": 5e9, "flops_per_s": 2e12})


def check_data_parallel_s(yours):
    for_each(yours, *({"k": k, "shard_s": shard_s, "params_s": params_s, "overlap": overlap}
                      for k, shard_s, params_s, overlap in (
                          (1, 9, 5, 0), (2, 9, 5, 0), (5, 9, 5, 0),  # no overlap
                          (2, 9, 5, 1), (2, 9, 5, 0.5),  # all of the sending, or half of it, is hidden
                          (2, 3, 5, 1), (2, 3, 5, 0.5),  # the backward pass is too short
                          (1, 9, 5, 1))))
    compare(yours, "for k=2, shard_s=9, params_s=5 and no fourth argument", lambda: (2, 9, 5))


def check_tensor_parallel_s(yours):
    for_each(yours, *({"k": k, "work_s": work_s, "reads_s": reads_s, "overlap": overlap}
                      for k, work_s, reads_s, overlap in (
                          (1, 20, 3, 0), (2, 20, 3, 0), (5, 20, 3, 0), (2, 20, 3, 1), (2, 20, 3, 0.5),
                          (2, 4, 3, 1), (2, 4, 3, 0.5), (5, 20, 9, 1), (1, 20, 3, 1))))
    compare(yours, "for k=2, work_s=20, reads_s=3 and no fourth argument", lambda: (2, 20, 3))


def check_pipeline_s(yours):
    for_each(yours, *({"work_s": work_s, "busiest_s": busiest_s, "crossing_s": crossing_s, "widest_s": widest_s, "micro": micro}
                      for work_s, busiest_s, crossing_s, widest_s, micro in (
                          (12, 6, 0, 0, 1), (12, 6, 1, 1, 1), (12, 6, 0, 0, 2), (12, 6, 0, 0, 3),
                          (20, 9, 3, 2, 2),  # the stage limits both passes
                          (20, 9, 6, 4, 2),  # the cut limits the forward pass
                          (20, 9, 11, 8, 2), (20, 9, 11, 8, 5))))  # and both
    compare(yours, "for work_s=12, busiest_s=6, crossing_s=1, widest_s=1 and no fifth argument", lambda: (12, 6, 1, 1))
