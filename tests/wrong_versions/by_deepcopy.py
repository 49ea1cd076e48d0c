def copies_without_a_sum(net, X, y, devices):
    """The gradients stay with the copies."""
    _pass(net, X, y, devices, gather=lambda net, replicas: None)


def only_the_first_copys(net, X, y, devices):
    """The gradient of the first shard."""
    def first(net, replicas):
        for p, q in zip(net.parameters(), replicas[0].parameters()):
            p.grad = q.grad

    _pass(net, X, y, devices, gather=first)


def the_mean_of_the_copies(net, X, y, devices):
    """Divided by the number of copies, although the loss is divided already."""
    def mean(net, replicas):
        for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
            p.grad = sum(q.grad for q in qs) / len(qs)

    _pass(net, X, y, devices, gather=mean)


def a_loss_for_each_shard(net, X, y, devices):
    """The mean of means: wrong if the shards are unequal."""
    replicas = [copy.deepcopy(net) for _ in X.chunk(len(devices))]
    for r, A, b in zip(replicas, X.chunk(len(devices)), y.chunk(len(devices))):
        (F.cross_entropy(r(A), b) / len(replicas)).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad for q in qs)


def no_copies(net, X, y, devices):
    """The network itself computes all shards: one device works."""
    F.cross_entropy(net(X), y).backward()


def a_copy_for_every_device(net, X, y, devices):
    """Devices without a shard have a copy without a gradient."""
    replicas = [copy.deepcopy(net) for _ in devices]
    scores = torch.cat([r(A) for r, A in zip(replicas, X.chunk(len(devices)))])
    F.cross_entropy(scores, y).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad for q in qs)


def _pass(net, X, y, devices, gather):
    shards = X.chunk(len(devices))
    replicas = [copy.deepcopy(net) for _ in shards]
    F.cross_entropy(torch.cat([r(A) for r, A in zip(replicas, shards)]), y).backward()
    gather(net, replicas)


def shards_are_not_sent(net, X, y, devices):
    """Each copy is on its device, the images are not."""
    shards = X.chunk(len(devices))
    replicas = [copy.deepcopy(net).to(d) for d, _ in zip(devices, shards)]
    F.cross_entropy(torch.cat([r(A).to(devices[0]) for r, A in zip(replicas, shards)]), y).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad.to(devices[0]) for q in qs)


def scores_stay_where_they_are(net, X, y, devices):
    """Joined without being sent to one device."""
    shards = [A.to(d) for A, d in zip(X.chunk(len(devices)), devices)]
    replicas = [copy.deepcopy(net).to(A.device) for A in shards]
    F.cross_entropy(torch.cat([r(A) for r, A in zip(replicas, shards)]), y).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad.to(devices[0]) for q in qs)


def gradients_are_not_sent(net, X, y, devices):
    """Added up on two devices."""
    shards = [A.to(d) for A, d in zip(X.chunk(len(devices)), devices)]
    replicas = [copy.deepcopy(net).to(A.device) for A in shards]
    F.cross_entropy(torch.cat([r(A).to(devices[0]) for r, A in zip(replicas, shards)]), y).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad for q in qs)


def nothing_is_sent(net, X, y, devices):
    """All copies stay on the first device."""
    shards = X.chunk(len(devices))
    replicas = [copy.deepcopy(net) for _ in shards]
    F.cross_entropy(torch.cat([r(A) for r, A in zip(replicas, shards)]), y).backward()
    for p, *qs in zip(net.parameters(), *[r.parameters() for r in replicas]):
        p.grad = sum(q.grad for q in qs)
