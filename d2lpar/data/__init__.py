"""Fashion-MNIST: the official files, their download, a stand-in where there are none, and minibatches."""
