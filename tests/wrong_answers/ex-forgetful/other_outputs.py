"""The outputs depend on who else is in the shard, and that is seen."""

from torch import nn


class Forgetful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 3)]

    def forward(self, X):
        return self.layers[0](X - X.mean(0))
