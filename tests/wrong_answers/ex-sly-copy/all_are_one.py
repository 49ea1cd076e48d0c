def sly_params(params, device):
    return [p.to(device).requires_grad_() for p in params]
