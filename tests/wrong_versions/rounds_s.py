def added(rounds, link, common=Link(0.0, 0.0)):
    """The longest message and the bus are added."""
    seconds = 0.0
    for sizes in rounds:
        seconds += link.alpha_s + (len(sizes) - 1) * common.alpha_s
        seconds += max(sizes) * link.beta_s_per_byte + sum(sizes) * common.beta_s_per_byte
    return seconds


def the_first_message_pays_twice(rounds, link, common=Link(0.0, 0.0)):
    """Every message pays the bus's latency."""
    seconds = 0.0
    for sizes in rounds:
        seconds += link.alpha_s + len(sizes) * common.alpha_s
        seconds += max(max(sizes) * link.beta_s_per_byte, sum(sizes) * common.beta_s_per_byte)
    return seconds


def every_message_pays(rounds, link, common=Link(0.0, 0.0)):
    """Each message pays the link's latency, as if they took turns."""
    seconds = 0.0
    for sizes in rounds:
        seconds += len(sizes) * link.alpha_s + (len(sizes) - 1) * common.alpha_s
        seconds += max(max(sizes) * link.beta_s_per_byte, sum(sizes) * common.beta_s_per_byte)
    return seconds


def the_longest_of_all_rounds(rounds, link, common=Link(0.0, 0.0)):
    """The maximum is taken over whole allreduces instead of rounds."""
    latency = sum(link.alpha_s + (len(sizes) - 1) * common.alpha_s for sizes in rounds)
    alone = sum(max(sizes) * link.beta_s_per_byte for sizes in rounds)
    return latency + max(alone, sum(sum(sizes) * common.beta_s_per_byte for sizes in rounds))


def all_latencies_in_the_maximum(rounds, link, common=Link(0.0, 0.0)):
    """Latency and bytes of the bus together, against those of the link."""
    return sum(max(link.alpha_s + max(sizes) * link.beta_s_per_byte,
                   (len(sizes) - 1) * common.alpha_s + sum(sizes) * common.beta_s_per_byte) for sizes in rounds)


def only_the_last_round(rounds, link, common=Link(0.0, 0.0)):
    """The return is inside the loop."""
    seconds = 0.0
    for sizes in rounds:
        seconds += link.alpha_s + (len(sizes) - 1) * common.alpha_s
        seconds += max(max(sizes) * link.beta_s_per_byte, sum(sizes) * common.beta_s_per_byte)
        return seconds
