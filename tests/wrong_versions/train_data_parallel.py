def one_device_only(net, num_devices, batch_size, lr, num_epochs=10, seed=0, init=None):
    """Wrapped for the first device."""
    return _train(net, num_devices, batch_size, lr, num_epochs, seed, init, lambda net, devices: DataParallel(net, devices[:1]))


def not_wrapped(net, num_devices, batch_size, lr, num_epochs=10, seed=0, init=None):
    """The plain network."""
    return _train(net, num_devices, batch_size, lr, num_epochs, seed, init, lambda net, devices: net)


def no_backward(net, num_devices, batch_size, lr, num_epochs=10, seed=0, init=None):
    """The loss is computed, and no gradient."""
    return _train(net, num_devices, batch_size, lr, num_epochs, seed, init, DataParallel, lambda loss: None)


def _train(net, num_devices, batch_size, lr, num_epochs, seed, init, wrap, backward=Tensor.backward):
    devices = try_devices(num_devices)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, seed=seed)
    with History(num_epochs, len(train_iter), devices) as history:
        initialize(net, seed, init)
        parallel = wrap(net.to(devices[0]), devices)
        trainer = torch.optim.SGD(parallel.parameters(), lr)
        for _ in range(num_epochs):
            parallel.train()
            for X, y in history.clocked(train_iter):
                trainer.zero_grad()
                backward(nn.CrossEntropyLoss()(parallel(X.to(devices[0])), y.to(devices[0])))
                trainer.step()
            history.add(evaluate_accuracy_gpus(parallel, test_iter))
    return history
