"""The check of the exercise `ex-moments`."""

import tracemalloc
import weakref

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Memory(TorchDispatchMode):
    """Remembers every tensor with at least `least` values that PyTorch creates."""

    def __init__(self, least):
        super().__init__()
        self.least, self.made = least, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.made += [weakref.ref(x) for x in pytree.tree_leaves(out)
                      if torch.is_tensor(x) and x.numel() >= self.least]
        return out

    def held(self, apart_from):
        """How many values the remaining tensors hold; views of the same memory count once."""
        there = [ref() for ref in self.made]
        places = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
                  // x.element_size() for x in there if x is not None}
        places.pop(apart_from.untyped_storage().data_ptr(), None)
        return sum(places.values())


def one_by_one(whole, sizes, memory, held):
    """Yield batches one by one; before each, note how many values tensors, arrays and lists hold."""
    before = None
    for batch in whole.split(sizes):
        elsewhere = tracemalloc.get_traced_memory()[0]  # arrays and lists, but not tensors
        before = elsewhere if before is None else before
        held.append(memory.held(apart_from=whole) + max(0, elsewhere - before) // whole.element_size())
        yield batch.clone()


def numbers_held(mean_and_variance, whole, sizes):
    """The answer's result, and how many values it held before each batch."""
    held = []
    tracemalloc.start()
    try:
        with Memory(whole[0].numel()) as memory:  # one image or more
            answer = mean_and_variance(one_by_one(whole, sizes, memory, held))
    finally:
        tracemalloc.stop()
    return answer, held


def check(mean_and_variance):
    """What is not right yet of the answer, in words, or "Right."."""
    float32, float64 = torch.float32, torch.float64
    for sizes, far, dtype in [([4, 4, 4], 0, float64), ([7, 1, 4], 2, float64),
                              ([0, 5, 0, 7], 3, float64), ([12], 3, float32),
                              ([3, 3, 3, 3], 1e3, float32), ([1, 8, 3], 1e4, float32),
                              ([5, 0, 7], 1e9, float64), ([120] * 20, 1, float64)]:
        generator = torch.Generator().manual_seed(len(sizes))
        whole = torch.randn(sum(sizes), 2, 9, 9, generator=generator, dtype=float64)
        whole = (whole + far * torch.tensor([1.0, -0.5]).view(2, 1, 1)).to(dtype)
        whole[:5] += 1
        largest = max(sizes) * 2 * 9 * 9
        answer, held = numbers_held(mean_and_variance, whole, sizes)
        case = (f"batches of {str(sizes[:4])[1:-1]}{', ...' * (len(sizes) > 4)} images, {dtype}, values around {far:g} "
                f"and {-far / 2:g}")
        if answer is None:
            return "Not yet: mean_and_variance returns nothing."
        if len(answer) != 2 or any(getattr(a, "shape", ()) != (2,) for a in answer):
            return f"Not yet: {case}: return two tensors of 2 values, not {answer!r}."
        flat = whole.double().transpose(0, 1).flatten(1)
        for name, given, right in zip(("mean", "variance"), answer,
                                      (flat.mean(1), flat.var(1, correction=0))):
            away = (given.double() - right).abs().max()
            if not away < 1e-3 * (1 if name == "variance" else 1 + far):
                return (f"Not yet: {case}: the {name} is {right.tolist()}, "
                        f"but you return {given.tolist()}.")
        if len(held) != len(sizes):
            return f"Not yet: {case}: you read only {len(held)} of {len(sizes)} batches."
        if len(sizes) == 20 and max(held) > 4 * largest:  # small batches take less than Python needs to count them
            return (f"Not yet: {case}: you held {max(held):,} values in memory before a "
                    f"batch was read, although a batch has at most {largest:,}.")
    return "Right."
