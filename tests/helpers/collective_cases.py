"""Cases for a collective: what the buffers of all ranks are, and how they lie in memory."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

FLOATS = [torch.float32, torch.float64, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]

LAYOUTS = {  # for each rank: the shape of the memory, and the buffer as a view of it
    "contiguous": (lambda shape: shape, lambda base: base),
    "behind others": (lambda shape: (3, *shape), lambda base: base[1]),
    "transposed": (lambda shape: shape[::-1], lambda base: base.permute(tuple(reversed(range(base.ndim))))),
    "every second": (lambda shape: (*shape, 2), lambda base: base[..., 1]),
    "every second row": (lambda shape: (2 * shape[0], *shape[1:]) if shape else (),
                         lambda base: base[::2] if base.ndim else base),
    "channels last": (lambda shape: (shape[0], *shape[2:], shape[1]) if len(shape) > 1 else shape,
                      lambda base: base.movedim(-1, 1) if base.ndim > 1 else base),
}
JOINT_LAYOUTS = {  # all ranks in one storage: the shape of the memory, and all buffers as views of it
    "side by side": (lambda shape, k: (k, *shape), lambda base: list(base)),
}


@dataclass(frozen=True)
class Case:
    """Buffers for every rank, the same ones whenever asked."""

    ranks: int
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layouts: tuple[str, ...] = ("contiguous",)  # the ranks take them in turn
    seed: int = 0

    @property
    def length(self):
        return int(np.prod(self.shape))

    @property
    def size_bytes(self):
        return self.length * self.dtype.itemsize

    @property
    def chunk_bytes(self):
        """What `tensor_split` promises: the first `length % ranks` chunks are one element longer."""
        share, longer = divmod(self.length, self.ranks)
        return [(share + (r < longer)) * self.dtype.itemsize for r in range(self.ranks)]

    def bases(self, dtype=None):
        """The memory, one tensor or one for each rank, without values."""
        joint = JOINT_LAYOUTS.get(self.layouts[0])
        if joint:
            return [torch.zeros(joint[0](self.shape, self.ranks), dtype=dtype or self.dtype)]
        layouts = itertools.islice(itertools.cycle(self.layouts), self.ranks)
        return [torch.zeros(LAYOUTS[name][0](self.shape), dtype=dtype or self.dtype) for name in layouts]

    def views(self, bases):
        joint = JOINT_LAYOUTS.get(self.layouts[0])
        views = joint[1](bases[0]) if joint else [
            LAYOUTS[name][1](base) for name, base in zip(itertools.cycle(self.layouts), bases)]
        assert [tuple(x.shape) for x in views] == [self.shape] * self.ranks
        return views

    def fill(self, bases, *, odd=False):
        """Normal numbers of many magnitudes, for `odd` in every second place any bits at all; all integers are such."""
        generator = torch.Generator().manual_seed(self.seed)
        for base in bases:
            size = (base.numel() * base.element_size(),)
            bits = torch.randint(256, size, dtype=torch.uint8, generator=generator).view(base.dtype)
            if base.is_floating_point():
                normal = torch.randn(base.numel(), dtype=torch.float64, generator=generator)
                normal *= 10 ** (torch.rand(base.numel(), dtype=torch.float64, generator=generator) * 6 - 3)
                special = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, 0.0])
                choice = torch.randint(len(special), (base.numel(),), generator=generator)
                kind = torch.randint(6, (base.numel(),), generator=generator) if odd else torch.tensor(0)
                normal = torch.where(kind == 3, special[choice], normal)
                bits = torch.where(kind > 3, bits, normal.to(base.dtype))
            base.copy_(bits.view(base.shape))

    def buffers(self, **kind):
        bases = self.bases()
        self.fill(bases, **kind)
        return self.views(bases)


def lengths_up_to(n):
    """Shapes of at most `n` elements, including empty ones, without dimensions and with several."""
    many = st.lists(st.integers(0, 6), max_size=4).map(tuple).filter(lambda shape: np.prod(shape) <= n)
    return st.one_of(st.integers(0, n).map(lambda length: (length,)), many)


layouts = st.one_of(st.lists(st.sampled_from(list(LAYOUTS)), min_size=1, max_size=3).map(tuple),
                    st.sampled_from([(name,) for name in JOINT_LAYOUTS]))
cases = st.builds(Case, ranks=st.integers(1, 8), shape=lengths_up_to(100), dtype=st.sampled_from(FLOATS + INTEGERS),
                  layouts=layouts, seed=st.integers(0, 2**31))
