"""right: tagging with padding: the number of real tokens is summed over ranks and the local loss sum is multiplied by the world size before DDP divides by it, which gives the mean over all tokens of the minibatch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD_LABEL = -100
TAGS, T = 5, 10
torch.manual_seed(170)
X = torch.randint(1, 20, (96, T))
lengths = torch.randint(1, T + 1, (96,))
pad = torch.arange(T)[None] >= lengths[:, None]
X = X.masked_fill(pad, 0)
y = (X % TAGS).masked_fill(pad, PAD_LABEL)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 12, padding_idx=0)
        self.enc = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(12, TAGS)

    def forward(self, ids):
        key_pad = ids.eq(0)
        h = self.enc(self.emb(ids), src_key_padding_mask=key_pad)
        return self.out(h)


def make_net():
    return Tagger()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    world = dist.get_world_size()
    for ids, tags in batches:
        logits = model(ids)
        loss_sum = F.cross_entropy(
            logits.flatten(0, 1), tags.flatten(), ignore_index=PAD_LABEL, reduction="sum"
        )
        n_tok = (tags != PAD_LABEL).sum()
        dist.all_reduce(n_tok)
        # DDP averages gradients -> undo the 1/world
        loss = loss_sum * world / n_tok
        opt.zero_grad()
        loss.backward()
        opt.step()
