"""The plain network does not train it either."""

from torch import nn


class Forgetful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, X):
        return self.layer(X).detach()
