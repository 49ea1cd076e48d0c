def means_are_added(net, X, y, num_microbatches, loss=cross_entropy):
    """Each micro-batch is divided by its own size."""
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).mean()
        part.backward()
        total += part.item()
    return total


def a_mean_of_means(net, X, y, num_microbatches, loss=cross_entropy):
    """Right for equal micro-batches only."""
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / max(len(A), 1) / num_microbatches
        part.backward()
        total += part.item()
    return total


def one_backward_at_the_end(net, X, y, num_microbatches, loss=cross_entropy):
    """Right, but nothing is saved."""
    total = 0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        total = total + loss(net(A), c).sum() / len(X)
    total.backward()
    return total.item()


def old_gradients_are_removed(net, X, y, num_microbatches, loss=cross_entropy):
    """It sets the gradients to zero first."""
    net.zero_grad()
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / len(X)
        part.backward()
        total += part.item()
    return total


def the_rest_is_lost(net, X, y, num_microbatches, loss=cross_entropy):
    """The last examples are dropped where the sizes do not divide."""
    size, total = len(X) // num_microbatches, 0.0
    for i in range(num_microbatches):
        part = loss(net(X[i * size:(i + 1) * size]), y[i * size:(i + 1) * size]).sum() / len(X)
        part.backward()
        total += part.item()
    return total


def always_the_cross_entropy(net, X, y, num_microbatches, loss=cross_entropy):
    """The argument `loss` is not used."""
    total = 0.0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = cross_entropy(net(A), c).sum() / len(X)
        part.backward()
        total += part.item()
    return total


def the_last_loss(net, X, y, num_microbatches, loss=cross_entropy):
    """It returns the last micro-batch's part."""
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / len(X)
        part.backward()
    return part.item()


def the_graph_is_kept(net, X, y, num_microbatches, loss=cross_entropy):
    """It returns a tensor that remembers the whole computation."""
    total = 0
    for A, c in zip(X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)):
        part = loss(net(A), c).sum() / len(X)
        part.backward()
        total = total + part
    return total
