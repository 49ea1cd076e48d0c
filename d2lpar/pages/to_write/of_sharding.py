"""The checks of the functions of `d2lpar.sharding` that readers write. All of them need ranks."""

import torch
import torch.distributed as dist
from torch import nn

from d2lpar.pages.on_ranks import compare_on_ranks
from d2lpar.sharding import parts_to_step


def tensor(values, dtype=torch.float64):
    """A tensor of these values."""
    return torch.tensor(values, dtype=dtype)


def value(result):
    """A copy, if it is a tensor."""
    return result.clone() if isinstance(result, torch.Tensor) else result


def on_ranks(yours, scene):
    """`compare_on_ranks` for this function in this scene."""
    return lambda words, *args, **settings: compare_on_ranks(yours, words, scene, *args, **settings)


# What if the model does not fit? the two halves of a ring


def padding_of(rank, fn, x):
    """The flat copy; and the tensor, once the copy has been overwritten."""
    x = x.clone().requires_grad_(x.requires_grad)
    result = fn(x)
    if result is None:
        return {"the result": None}
    found = {"the result": result.detach().clone(), "`requires_grad` of the result": result.requires_grad}
    with torch.no_grad():
        result.fill_(100)
    return {**found, "x, after somebody has overwritten the result,": x.detach()}


def check_padded(yours):
    case = on_ranks(yours, padding_of)
    case("on two ranks for x = [7, 8, 9]", tensor([7.0, 8, 9]))
    case("on two ranks for x = [7, 8]", tensor([7.0, 8]))
    case("on three ranks for x = [7, 8, 9, 10]", tensor([7.0, 8, 9, 10]), world_size=3)
    case("on three ranks for five values", tensor([1.0, 2, 3, 4, 5]), world_size=3)
    case("on three ranks for x with two rows of two values", tensor([[1.0, 2], [3, 4]]), world_size=3)
    case("on two ranks for a float32 tensor", tensor([7.0, 8, 9], torch.float32))
    case("on two ranks for a parameter", tensor([7.0, 8, 9]).requires_grad_())


def part_of_the_mean(rank, fn, xs):
    """This rank's part of the mean, and what it has left of its tensor."""
    x = xs[rank].clone()
    return {"the result": value(fn(x)), "x": x}


def check_mean_part(yours):
    case = on_ranks(yours, part_of_the_mean)
    case("if two ranks hold x = [2, 4] and x = [6, 10]", [tensor([2.0, 4]), tensor([6.0, 10])])
    case("if two ranks hold x = [2, 4, 1, 3] and x = [6, 10, 3, 7]",
         [tensor([2.0, 4, 1, 3]), tensor([6.0, 10, 3, 7])])
    three = [tensor([3.0, 6, 9]), tensor([6.0, 3, 0]), tensor([0.0, 0, 3])]
    case("if three ranks hold x = [3, 6, 9], x = [6, 3, 0] and x = [0, 0, 3]", three, world_size=3)
    case("if two ranks hold x = [2, 4, 1] and x = [6, 10, 3]", [tensor([2.0, 4, 1]), tensor([6.0, 10, 3])])
    case("if two ranks hold matrices of three rows", [tensor([[2.0], [4], [1]]), tensor([[6.0], [10], [3]])])
    case("for float32 tensors", [tensor([2.0, 4], torch.float32), tensor([6.0, 10], torch.float32)])


def gathered(rank, fn, parts, shape):
    """The whole tensor; and the part, once the whole has been overwritten."""
    part = parts[rank].clone()
    result = fn(part, torch.Size(shape))
    found = value(result)
    if isinstance(result, torch.Tensor):
        result.detach().fill_(100)
    return {"the result": found, "the part, after somebody has overwritten the result,": part}


def check_all_gather_parts(yours):
    case = on_ranks(yours, gathered)
    case("if the parts are [7, 8] and [9, 10], for a shape of (4,)", [tensor([7.0, 8]), tensor([9.0, 10])], (4,))
    case("if the parts are [7, 8] and [9, 0], for a shape of (3,)", [tensor([7.0, 8]), tensor([9.0, 0])], (3,))
    case("if the parts are [1, 2], [3, 4] and [5, 6], for a shape of (2, 3)",
         [tensor([1.0, 2]), tensor([3.0, 4]), tensor([5.0, 6])], (2, 3), world_size=3)
    case("if the parts are [1, 2], [3, 4] and [0, 0], for a shape of (2, 2)",
         [tensor([1.0, 2]), tensor([3.0, 4]), tensor([0.0, 0])], (2, 2), world_size=3)
    case("for parts in float32", [tensor([7.0], torch.float32), tensor([9.0], torch.float32)], (2,))


# What if the model does not fit? stage 1


def reduce_into(rank, fn, grads, before=None):
    """A parameter with these gradients on the ranks; its part's gradient after each of them."""
    p = nn.Parameter(torch.zeros_like(next(g for g in grads if g is not None)))
    part = nn.Parameter(torch.zeros(-(-p.numel() // dist.get_world_size()), dtype=p.dtype))
    p.grad = None if grads[rank] is None else grads[rank].clone()
    part.grad = None if before is None else before[rank].clone()
    fn(p, part)
    return {"part.grad": part.grad, "p.grad": p.grad, "the part itself": part.detach()}


def check_reduce_gradient(yours):
    case = on_ranks(yours, reduce_into)
    grads = [tensor([2.0, 4]), tensor([6.0, 10])]
    case("if p.grad is [2, 4] and [6, 10] on two ranks and part.grad is None", grads)
    case("if p.grad is [2, 4] and [6, 10] on two ranks and part.grad is [1] and [3]", grads,
                     [tensor([1.0]), tensor([3.0])])
    case("if three ranks share a gradient of four values",
         [tensor([3.0, 6, 9, 1]), tensor([6.0, 3, 0, 1]), tensor([0.0, 0, 3, 1])], world_size=3)
    case("if p.grad is [2, 4] on rank 0 and None on rank 1", [tensor([2.0, 4]), None])


def steps(rank, fn, values, grads):
    """Two parameters; part gradients come twice, as reduce_gradient adds them."""
    net = nn.Module()
    for i, each in enumerate(values):
        net.register_parameter(f"p{i}", nn.Parameter(tensor(each)))
    params, parts = [*net.parameters()], parts_to_step(net)
    optimizer, found, memory = torch.optim.SGD(parts, lr=0.5, momentum=0.5), {}, [p.data_ptr() for p in params]
    for step, of_step in enumerate(grads):
        for part, grad in zip(parts, of_step[rank]):
            part.grad = tensor(grad) + (0 if part.grad is None else part.grad)
        fn(optimizer, params, parts)
        left = sum(float(part.grad.abs().sum()) for part in parts if part.grad is not None)
        after = f"after step {step + 1}" if len(grads) > 1 else "afterwards"
        found |= {f"p{i}, {after}," if len(params) > 1 else f"the parameter, {after},": p.detach().clone()
                  for i, p in enumerate(params)}
        found[f"what is left in the gradients of the parts, {after},"] = left
        found["whether all parameters are still where they were in memory (so that the parts are views of them),"] = \
            memory == [p.data_ptr() for p in params]
    return found


def check_step_and_gather(yours):
    case = on_ranks(yours, steps)
    case("if the parameter is [1, 2], the learning rate 0.5, and the gradients of the two parts 2 and 4",
                     [[1.0, 2]], [[[[2.0]], [[4.0]]]])
    case("for a parameter of three values on two ranks", [[1.0, 2, 3]], [[[[2.0, 2]], [[4.0, 0]]]])
    case("for two parameters, p0 with two rows", [[[1.0, 2], [3, 4]], [5.0]],
                     [[[[2.0, 4], [6.0]], [[2.0, 2], [0.0]]]])
    case("for the parameter [1, 2, 3] on three ranks", [[1.0, 2, 3]],
                     [[[[2.0]], [[4.0]], [[6.0]]]], world_size=3)
    case("if two steps follow one another", [[1.0, 2]], [[[[2.0]], [[4.0]]], [[[2.0]], [[-2.0]]]])
