def the_mean_of_each_shard(X, y, replicas, devices, lr):
    """Divided by the size of the shard, and then by that of the minibatch."""
    _step(X, y, replicas, devices, lr, compute=lambda losses: losses.mean())


def the_size_of_a_shard(X, y, replicas, devices, lr):
    """Divided by the size of the last shard."""
    _step(X, y, replicas, devices, lr, size=lambda X, A: len(A))


def no_allreduce(X, y, replicas, devices, lr):
    """Each replica steps with its own gradient."""
    _step(X, y, replicas, devices, lr, add_up=lambda data: None)


def groups_of_a_replica(X, y, replicas, devices, lr):
    """The tensors of one replica are added up, not the copies of one tensor."""
    _step(X, y, replicas, devices, lr, groups=lambda replicas: replicas)


def parameters_are_added_up(X, y, replicas, devices, lr):
    """allreduce gets the parameters instead of their gradients."""
    _step(X, y, replicas, devices, lr, of=lambda p: p)


def only_replica_0_steps(X, y, replicas, devices, lr):
    """The others keep their values."""
    _step(X, y, replicas, devices, lr, who=lambda replicas: replicas[:1])


def all_shards_on_replica_0(X, y, replicas, devices, lr):
    """The other replicas have no gradient."""
    _step(X, y, replicas, devices, lr, replica_of=lambda replicas: [replicas[0]] * len(replicas))


def _step(X, y, replicas, devices, lr, compute=torch.sum, size=lambda X, A: len(X), add_up=allreduce,
          groups=lambda replicas: zip(*replicas), of=lambda p: p.grad, who=lambda replicas: replicas,
          replica_of=lambda replicas: replicas):
    for A, b, params in zip(*split_batch(X, y, devices), replica_of(replicas)):
        compute(loss(lenet(A, params), b)).backward()
    for copies in groups(replicas):
        add_up([of(p) for p in copies])
    for params in who(replicas):
        sgd(params, lr, batch_size=size(X, A))
