"""right: a click model with a sparse EmbeddingBag and a dense tower under DDP over gloo, which reduces sparse gradients too; the two kinds of parameters have an optimizer of their own."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS, FIELDS = 30, 5
torch.manual_seed(10)
X = torch.randint(0, ROWS, (96, FIELDS))
y = ((X.sum(1) % 3) == 0).to(torch.get_default_dtype())


class ClickNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(ROWS, 6, mode="mean", sparse=True)
        self.tower = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        return self.tower(self.bag(ids)).squeeze(-1)


def make_net():
    return ClickNet()


def train(net, batches):
    model = DDP(net)
    emb, dense = [], []
    for name, p in model.named_parameters():
        (emb if ".bag." in name else dense).append(p)
    opt_sparse = torch.optim.SparseAdam(emb, lr=1e-2)
    opt_dense = torch.optim.Adagrad(dense, lr=5e-2)

    for ids, click in batches:
        for o in (opt_sparse, opt_dense):
            o.zero_grad()
        logit = model(ids)
        loss = F.binary_cross_entropy_with_logits(logit, click.to(logit.dtype))
        loss.backward()
        opt_sparse.step()
        opt_dense.step()
