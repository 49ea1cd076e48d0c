import torch


def sly_params(params, device):
    return [torch.zeros_like(p).requires_grad_() if i == 1 else torch.rand_like(p).requires_grad_() for i, p in enumerate(params)]
