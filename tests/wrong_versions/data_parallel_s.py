def all_of_the_pass_hides(k, shard_s, params_s, overlap=0):
    """The forward pass hides sending, too."""
    send_s = 2 * (k - 1) / k * params_s
    return shard_s + send_s - overlap * min(send_s, shard_s)


def half_of_the_sending(k, shard_s, params_s, overlap=0):
    """The sums are not sent back."""
    send_s = (k - 1) / k * params_s
    return shard_s + send_s - overlap * min(send_s, 2 / 3 * shard_s)


def all_of_the_sending_is_hidden(k, shard_s, params_s, overlap=0):
    """However short the backward pass is."""
    return shard_s + (1 - overlap) * 2 * (k - 1) / k * params_s


def the_shard_is_divided_again(k, shard_s, params_s, overlap=0):
    """`shard_s` is taken for the time of the whole minibatch."""
    send_s = 2 * (k - 1) / k * params_s
    return shard_s / k + send_s - overlap * min(send_s, 2 / 3 * shard_s / k)


def it_can_hide_what_is_longer(k, shard_s, params_s, overlap=0):
    """max instead of min."""
    send_s = 2 * (k - 1) / k * params_s
    return shard_s + send_s - overlap * max(send_s, 2 / 3 * shard_s)
