def nothing_is_gathered(optimizer, params, parts):
    """Each rank has a new part only of its own."""
    optimizer.step()
    optimizer.zero_grad()


def gathered_before_the_step(optimizer, params, parts):
    """The others' parts are those of the step before."""
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))
    optimizer.step()
    optimizer.zero_grad()


def no_step(optimizer, params, parts):
    """The optimizer is forgotten."""
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))
    optimizer.zero_grad()


def the_gradients_stay(optimizer, params, parts):
    """The next step adds to them."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))


def the_gradients_go_first(optimizer, params, parts):
    """Nothing is left to step with."""
    optimizer.zero_grad()
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))


def a_new_name(optimizer, params, parts):
    """`p = ...` changes no parameter."""
    optimizer.step()
    for p, part in zip(params, parts):
        p = all_gather_parts(part.data, p.shape)
    optimizer.zero_grad()


def in_place_without_data(optimizer, params, parts):
    """Autograd watches p."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.copy_(all_gather_parts(part.data, p.shape))
    optimizer.zero_grad()


def only_the_first(optimizer, params, parts):
    """The return is inside the loop."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.data, p.shape))
        optimizer.zero_grad()
        return


def the_gradient_is_gathered(optimizer, params, parts):
    """Gradients instead of parameters."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part.grad, p.shape))
    optimizer.zero_grad()


def the_part_is_watched_by_autograd(optimizer, params, parts):
    """`part` instead of `part.data`."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data.copy_(all_gather_parts(part, p.shape))
    optimizer.zero_grad()


def new_memory(optimizer, params, parts):
    """The parameters are no longer views of the flat tensors."""
    optimizer.step()
    for p, part in zip(params, parts):
        p.data = all_gather_parts(part.data, p.shape)
    optimizer.zero_grad()
