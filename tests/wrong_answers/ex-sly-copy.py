import torch


def all_are_copies(params, device):
    return [p.detach().clone().requires_grad_() for p in params]


def all_are_one(params, device):
    return [p.to(device).requires_grad_() for p in params]


def new_numbers(params, device):
    return [torch.zeros_like(p).requires_grad_() if i == 1 else torch.rand_like(p).requires_grad_() for i, p in enumerate(params)]


def no_gradient(params, device):
    return [p.detach() if i != 1 else p.detach().clone() for i, p in enumerate(params)]
