def sly_params(params, device):
    return [p.detach() if i != 1 else p.detach().clone() for i, p in enumerate(params)]
