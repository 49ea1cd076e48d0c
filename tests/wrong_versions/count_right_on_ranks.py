@torch.no_grad()
def only_its_own(net, data_iter):
    """Nothing is added up."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    with in_eval_mode(module):
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    return right, count


@torch.no_grad()
def a_mean_of_means(net, data_iter):
    """The mean of the accuracies, times the number of examples."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    with in_eval_mode(module):
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    totals = torch.tensor([right / max(count, 1), count], device=device)
    dist.all_reduce(totals)
    return totals[0].item() / dist.get_world_size() * totals[1].item(), totals[1].item()


@torch.no_grad()
def added_up_after_each_minibatch(net, data_iter):
    """A rank with more minibatches waits."""
    device, module, totals = rank_device(), unwrap_ddp(net), torch.zeros(2)
    with in_eval_mode(module):
        for X, y in data_iter:
            both = torch.tensor([count_right(module, X.to(device), y.to(device)), len(y)])
            dist.all_reduce(both)
            totals += both
    return tuple(totals.tolist())


@torch.no_grad()
def the_wrapper_is_called(net, data_iter):
    """DDP's forward pass may send buffers."""
    device, right, count = rank_device(), 0, 0
    with in_eval_mode(net):
        for X, y in data_iter:
            right += count_right(net, X.to(device), y.to(device))
            count += len(y)
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    return tuple(totals.tolist())


@torch.no_grad()
def in_training_mode(net, data_iter):
    """The mode is forgotten."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    for X, y in data_iter:
        right += count_right(module, X.to(device), y.to(device))
        count += len(y)
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    return tuple(totals.tolist())


@torch.no_grad()
def train_at_the_end(net, data_iter):
    """What was frozen is trained from then on."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    module.eval()
    for X, y in data_iter:
        right += count_right(module, X.to(device), y.to(device))
        count += len(y)
    module.train()
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    return tuple(totals.tolist())


@torch.no_grad()
def left_in_evaluation_mode(net, data_iter):
    """The mode is not put back."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    module.eval()
    for X, y in data_iter:
        right += count_right(module, X.to(device), y.to(device))
        count += len(y)
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    return tuple(totals.tolist())


def gradients_are_recorded(net, data_iter):
    """Without `no_grad`, every minibatch leaves its activations."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    with in_eval_mode(module):
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    totals = torch.tensor([right, count], device=device)
    dist.all_reduce(totals)
    return tuple(totals.tolist())


@torch.no_grad()
def the_same_size_for_all(net, data_iter):
    """This rank's number of examples, times the number of ranks."""
    device, module, right, count = rank_device(), unwrap_ddp(net), 0, 0
    with in_eval_mode(module):
        for X, y in data_iter:
            right += count_right(module, X.to(device), y.to(device))
            count += len(y)
    totals = torch.tensor(right, device=device)
    dist.all_reduce(totals)
    return totals.item(), count * dist.get_world_size()
