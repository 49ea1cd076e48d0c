def only_the_backward_pass_hides(k, work_s, summed_s, overlap=0):
    """As in data parallelism."""
    send_s = 2 * (k - 1) / k * summed_s
    return work_s / k + send_s - overlap * min(send_s, 2 / 3 * work_s / k)


def the_work_is_not_shared(k, work_s, summed_s, overlap=0):
    """Each rank computes everything."""
    send_s = 2 * (k - 1) / k * summed_s
    return work_s + send_s - overlap * min(send_s, work_s)


def only_forward(k, work_s, summed_s, overlap=0):
    """The gradients are not sent."""
    send_s = (k - 1) / k * summed_s
    return work_s / k + send_s - overlap * min(send_s, work_s / k)


def everything_is_sent(k, work_s, summed_s, overlap=0):
    """As if a rank had none of the inputs itself."""
    return work_s / k + 2 * summed_s - overlap * min(2 * summed_s, work_s / k)
