def only_rank_0_broadcasts(module):
    """Only rank 0 calls the collective."""
    if dist.get_rank() == 0:
        for x in chain(module.parameters(), module.buffers()):
            dist.broadcast(x.detach(), src=0)


def each_rank_is_the_source(module):
    """Each rank sends its own parameters, and no rank receives any."""
    for x in chain(module.parameters(), module.buffers()):
        dist.broadcast(x.detach(), src=dist.get_rank())


def a_clone_is_sent(module):
    """The clone gets rank 0's values, and is thrown away."""
    for x in chain(module.parameters(), module.buffers()):
        start = x.detach().clone()
        dist.broadcast(start, src=0)


def buffers_are_forgotten(module):
    """Only parameters are sent."""
    for p in module.parameters():
        dist.broadcast(p.detach(), src=0)


def frozen_parameters_are_forgotten(module):
    """Only what is trained is sent."""
    for x in chain(trained_params(module), module.buffers()):
        dist.broadcast(x.detach(), src=0)


def rank_1_is_the_source(module):
    """The last rank's values are sent."""
    for x in chain(module.parameters(), module.buffers()):
        dist.broadcast(x.detach(), src=dist.get_world_size() - 1)


def the_mean_of_all_starts(module):
    """All ranks get the mean: equal, but not rank 0's."""
    for x in chain(module.parameters(), module.buffers()):
        total = x.detach().clone().double()
        dist.all_reduce(total)
        x.detach().copy_(total / dist.get_world_size())


def new_parameters(module):
    """An optimizer that was created before holds the old ones."""
    for name, p in list(module.named_parameters()):
        start = p.detach().clone()
        dist.broadcast(start, src=0)
        owner = module.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], nn.Parameter(start, requires_grad=p.requires_grad))
    for x in module.buffers():
        dist.broadcast(x, src=0)


def parameters_that_autograd_watches(module):
    """No detach: PyTorch warns in the next backward pass."""
    for x in chain(module.parameters(), module.buffers()):
        dist.broadcast(x, src=0)


def the_state_dict_is_not_written_back(module):
    """Rank 0's state arrives, and is not loaded."""
    state = [module.state_dict()]
    dist.broadcast_object_list(state, src=0)


def the_answer_is_returned(module):
    """What arrives is returned in a list."""
    found = []
    for x in chain(module.parameters(), module.buffers()):
        start = x.detach().clone()
        dist.broadcast(start, src=0)
        found.append(start)
    return found
