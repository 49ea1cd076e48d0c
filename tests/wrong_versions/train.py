def one_replica_k_times(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """A list that names one replica k times."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step,
                  lambda start, devices: [get_params(start, devices[0])] * len(devices))


def no_copy(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """The start itself is trained."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step,
                  lambda start, devices: [start for device in devices])


def one_replica(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """A replica, not a list of replicas."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step,
                  lambda start, devices: get_params(start, devices[0]))


def the_step_of_the_caller_is_forgotten(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None,
                                        step=None):
    """Always train_batch."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, train_batch,
                  lambda start, devices: [get_params(start, device) for device in devices])


def _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step, copies):
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_train, seed=seed)
    start = lenet_params() if params is None else params
    replicas = copies(start, devices)
    with History(num_epochs, len(train_iter), devices) as history:
        for _ in range(num_epochs):
            for X, y in history.clocked(train_iter):
                step(X, y, replicas, devices, lr)
            history.add(evaluate_accuracy(replicas[0], test_iter))
    return replicas, history


def the_default_step_is_missing(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """`step`, which may be None, instead of `step or train_batch`."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step,
                  lambda start, devices: [get_params(start, device) for device in devices])


def starts_from_its_own(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """`params` is ignored."""
    return _train(num_devices, batch_size, lr, num_epochs, params, seed, num_train, step or train_batch,
                  lambda start, devices: [get_params(lenet_params(), device) for device in devices])


def copies_in_every_epoch(num_devices, batch_size, lr, num_epochs=10, params=None, seed=0, num_train=None, step=None):
    """All but the last epoch are forgotten."""
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_train, seed=seed)
    start = lenet_params() if params is None else params
    with History(num_epochs, len(train_iter), devices) as history:
        for _ in range(num_epochs):
            replicas = [get_params(start, device) for device in devices]
            for X, y in history.clocked(train_iter):
                (step or train_batch)(X, y, replicas, devices, lr)
            history.add(evaluate_accuracy(replicas[0], test_iter))
    return replicas, history
