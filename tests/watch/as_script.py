"""A training that was written for `diagnose` as a complete script: `watch as_script.py FILE`, or a name of the catalogue."""

import os
import runpy
import sys

import torch
import torch.distributed as dist

from d2lpar.diagnosis.compare import _cut_alike, _cut_batches, _size
from d2lpar.pages.ddp_examples import RIGHT, WRONG, examples


def main(name: str) -> None:
    if name.endswith(".py"):
        sys.path.insert(0, os.path.dirname(name))
        names = runpy.run_path(name)
        train, make_net, X, y = (names[each] for each in ("train", "make_net", "X", "y"))
    else:
        train, make_net = (RIGHT | WRONG)[name][:2]
        X, y = examples(make_net, 54)
    dist.init_process_group("gloo")
    rank, k = dist.get_rank(), dist.get_world_size()
    size = _size(len(y), 3, k)
    mine = _cut_alike(size, k)[rank]
    torch.manual_seed(rank)
    kind = X.dtype, y.dtype
    train(make_net(), [(X[mine].to(kind[0]), y[mine].to(kind[1])) for X, y in _cut_batches(X, y, 3, size)])


if __name__ == "__main__":
    main(sys.argv[1])
