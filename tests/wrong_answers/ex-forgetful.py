from torch import nn


class a_float(nn.Module):
    """Refused, but for what it returns."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, X):
        return self.layer(X).sum().item()


class detached(nn.Module):
    """The plain network does not train it either."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, X):
        return self.layer(X).detach()


class frozen(nn.Module):
    """Nothing trains, so no gradient is lost."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 3).requires_grad_(False)]

    def forward(self, X):
        return self.layers[0](X)


class other_outputs(nn.Module):
    """The outputs depend on who else is in the shard, and that is seen."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 3)]

    def forward(self, X):
        return self.layers[0](X - X.mean(0))


class registered_twice(nn.Module):
    """A layer in two places is one layer, and known."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.again = self.layer

    def forward(self, X):
        return self.again(X)
