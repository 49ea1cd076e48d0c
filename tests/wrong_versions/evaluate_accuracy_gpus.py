@torch.no_grad()
def the_mean_of_the_batches(net, data_iter, split_f=split_batch, devices=None):
    """A batch of three counts as much as a batch of a hundred."""
    module, devices = unwrap(net, devices)
    replicas = [replicate(module, device).eval() for device in devices]
    shares = [sum(run_on_devices(count_right, replicas, *split_f(X, y, devices))) / len(y) for X, y in data_iter]
    return sum(shares) / len(shares)


@torch.no_grad()
def the_network_is_put_into_evaluation_mode(net, data_iter, split_f=split_batch, devices=None):
    """And stays there."""
    module, devices = unwrap(net, devices)
    module.eval()
    replicas = [replicate(module, device) for device in devices]
    right, count = 0, 0
    for X, y in data_iter:
        right += sum(run_on_devices(count_right, replicas, *split_f(X, y, devices)))
        count += len(y)
    return right / count


@torch.no_grad()
def replicas_in_training_mode(net, data_iter, split_f=split_batch, devices=None):
    """BatchNorm uses and changes its statistics."""
    module, devices = unwrap(net, devices)
    right, count = 0, 0
    for X, y in data_iter:
        right += sum(run_on_devices(count_right, [module] * len(devices), *split_f(X, y, devices)))
        count += len(y)
    return right / count


@torch.no_grad()
def its_own_cut(net, data_iter, split_f=split_batch, devices=None):
    """split_f is not used."""
    module, devices = unwrap(net, devices)
    replicas = [replicate(module, device).eval() for device in devices]
    right, count = 0, 0
    for X, y in data_iter:
        right += sum(run_on_devices(count_right, replicas, *split_batch(X, y, devices)))
        count += len(y)
    return right / count


@torch.no_grad()
def the_first_batch_only(net, data_iter, split_f=split_batch, devices=None):
    """Returns in the loop."""
    module, devices = unwrap(net, devices)
    replicas = [replicate(module, device).eval() for device in devices]
    for X, y in data_iter:
        return sum(run_on_devices(count_right, replicas, *split_f(X, y, devices))) / len(y)
