def sly_params(params, device):
    return [p.detach().clone().requires_grad_() for p in params]
