"""wrong: the language-model loss is a mean over the rank's own unmasked tokens; ranks with few tokens count as much as ranks with many, so the average of the means is not the mean over the minibatch.

cause: loss is normalised by the local number of valid tokens, which differs between ranks
cure: sum the loss with reduction="sum", all_reduce the token count, and use loss_sum * world_size / total_count
line: loss = F.cross_entropy(logits.view(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, T = 11, 12
gen = torch.Generator().manual_seed(2)
ids = torch.randint(0, VOCAB, (96, T + 1), generator=gen)
prompt_len = torch.randint(0, T, (96, 1), generator=gen)
X = ids[:, :-1].clone()
# instruction tuning: no loss on the prompt
y = ids[:, 1:].masked_fill(torch.arange(T).unsqueeze(0) < prompt_len, -100)


class TinyLM(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.head(h).contiguous()


def make_net():
    return TinyLM()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for inputs, labels in batches:
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
