def the_loop(X, y, replicas, devices, lr):
    """One shard after the other: train_batch."""
    for A, b, params in zip(*split_batch(X, y, devices), replicas):
        shard_backward(A, b, params)
    for copies in zip(*replicas):
        allreduce([p.grad for p in copies])
    for params in replicas:
        sgd(params, lr, batch_size=len(X))


def the_loop_written_out(X, y, replicas, devices, lr):
    """One after the other, without shard_backward."""
    for A, b, params in zip(*split_batch(X, y, devices), replicas):
        loss(lenet(A, params), b).sum().backward()
    for copies in zip(*replicas):
        allreduce([p.grad for p in copies])
    for params in replicas:
        sgd(params, lr, batch_size=len(X))


def the_pairs_are_not_unpacked(X, y, replicas, devices, lr):
    """run_on_devices gets one list instead of two."""
    run_on_devices(shard_backward, split_batch(X, y, devices), replicas)
    for copies in zip(*replicas):
        allreduce([p.grad for p in copies])
    for params in replicas:
        sgd(params, lr, batch_size=len(X))


def called_instead_of_handed_over(X, y, replicas, devices, lr):
    """shard_backward(...) with all shards at once."""
    X_shards, y_shards = split_batch(X, y, devices)
    run_on_devices(shard_backward(X_shards, y_shards, replicas))
