def as_they_come(num_examples, batch_size):
    whole, rest = divmod(num_examples, batch_size)
    return [batch_size] * whole + [rest] * (rest > 0)


def dropped(num_examples, batch_size):
    return [batch_size] * (num_examples // batch_size)


def fractions(num_examples, batch_size):
    count = max(1, num_examples // batch_size)
    return [num_examples / count] * count


def nothing_for_few(num_examples, batch_size):
    count = num_examples // batch_size
    size, more = divmod(num_examples, count)
    return [size + 1] * more + [size] * (count - more)


def one_for_all(num_examples, batch_size):
    return [num_examples]


def one_more_than_possible(num_examples, batch_size):
    count = -(-num_examples // batch_size)
    size, more = divmod(num_examples, count)
    return [size + 1] * more + [size] * (count - more)


def only_up_to_100_000(num_examples, batch_size):
    if num_examples > 100_000:
        whole, rest = divmod(num_examples, batch_size)
        return [batch_size] * whole + [rest] * (rest > 0)
    count = max(1, num_examples // batch_size)
    size, more = divmod(num_examples, count)
    return [size + 1] * more + [size] * (count - more)


def rest_to_one(num_examples, batch_size):
    sizes = [batch_size] * max(1, num_examples // batch_size)
    sizes[-1] += num_examples - sum(sizes)
    return sizes
