"""The explorers of the book, and what the package says that they show."""

from math import ceil

from d2lpar.cost import (
    PUBLISHED,
    Link,
    double_tree_s,
    halving_s,
    hierarchical_halving_s,
    hierarchical_ring_s,
    ring_s,
    tree_s,
)
from d2lpar.ways import (
    BYTES,
    alone_s,
    data_parallel_s,
    pipeline_s,
    stages_of,
    tensor_parallel_s,
    transformer_pieces,
)

BARS, CURVES = "22_three_ways", "17_when_it_pays"  # the pages on which they are


def bars_ms(k: int, batch: int, tflops: float, gbytes: float, percent: float, micro: int) -> list[float]:
    """The times of a step on one rank, and with data, tensor and pipeline parallelism, for these values of the sliders."""
    pieces = transformer_pieces(8, 4096, 1024)
    flop, params, summed = (sum(getattr(piece, field) for piece in pieces) for field in ("flop", "params", "summed"))
    stages = stages_of(pieces, k)
    work_s, shard_s, busiest_s = (alone_s(n, each, tflops * 1e12) for n, each in (
        (batch, flop), (ceil(batch / k), flop), (batch, stages.busiest)))
    params_s, summed_s, crossing_s, widest_s = (BYTES * numbers / (gbytes * 1e9) for numbers in (
        params, batch * summed, batch * stages.crossing, batch * stages.widest))
    times = (work_s, data_parallel_s(k, shard_s, params_s, percent / 100), tensor_parallel_s(k, work_s, summed_s, percent / 100),
             pipeline_s(work_s, busiest_s, crossing_s, widest_s, micro))
    return [1e3 * seconds for seconds in times]


def curves_ms(power: int, mbytes: float, micros: float, gbytes: float, near: int, work: float) -> list[float]:
    """The times of six allreduce algorithms on 2 ** power devices for these slider positions; `work` changes none of them."""
    inside, k, size, link = PUBLISHED["NVLink 4"].link, 2**power, mbytes * 1e6, Link(micros / 1e6, 1e-9 / gbytes)
    trees, per_node = min(double_tree_s(size, k, link, pieces) for pieces in range(1, 2000)), min(k, 2**near)
    times = (tree_s(size, k, link), ring_s(size, k, link), halving_s(size, k, link), trees,
             hierarchical_ring_s(size, k, per_node, inside, link), hierarchical_halving_s(size, k, per_node, inside, link))
    return [1e3 * seconds for seconds in times]
