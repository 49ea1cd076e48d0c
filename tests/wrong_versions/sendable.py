def each_at_once(order, arrived, num_sent):
    """All that have arrived and have not been sent, whatever the gaps."""
    return [name for name in order[num_sent:] if name in arrived]


def what_was_sent_is_sent_again(order, arrived, num_sent):
    """`num_sent` is ignored."""
    ready = []
    for name in order:
        if name not in arrived:
            break
        ready.append(name)
    return ready


def only_one_at_a_time(order, arrived, num_sent):
    """`if` where `while` is needed: what waited behind the gap stays."""
    if num_sent < len(order) and order[num_sent] in arrived:
        return [order[num_sent]]
    return []


def only_when_all_are_there(order, arrived, num_sent):
    """Everything at the end: no overlap."""
    return order[num_sent:] if len(arrived) == len(order) else []


def beyond_the_end(order, arrived, num_sent):
    """The end of the list is forgotten."""
    ready = []
    while order[num_sent + len(ready)] in arrived:
        ready.append(order[num_sent + len(ready)])
    return ready


def how_many_instead_of_which(order, arrived, num_sent):
    """A number instead of a list."""
    n = num_sent
    while n < len(order) and order[n] in arrived:
        n += 1
    return n - num_sent


def arrived_is_emptied(order, arrived, num_sent):
    """The caller's set is changed."""
    ready = []
    for name in order[num_sent:]:
        if name not in arrived:
            break
        arrived.remove(name)
        ready.append(name)
    return ready


def the_order_of_the_set(order, arrived, num_sent):
    """In some order: a set has none."""
    return sorted(arrived)[num_sent:]


def places_found_by_value(order, arrived, num_sent):
    """`index` compares with ==, and parameters of equal values are not the same."""
    ready = []
    for name in order:
        if order.index(name) < num_sent:
            continue
        if name not in arrived:
            break
        ready.append(name)
    return ready


def the_return_is_forgotten(order, arrived, num_sent):
    """No return."""
    ready = []
    for name in order[num_sent:]:
        if name not in arrived:
            break
        ready.append(name)


def membership_in_a_list(order, arrived, num_sent):
    """`in` on a list compares tensors by value."""
    sent, out = order[:num_sent], []
    for g in order:
        if g in sent:
            continue
        if g not in arrived:
            break
        out.append(g)
    return out
