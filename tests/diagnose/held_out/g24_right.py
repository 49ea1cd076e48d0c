"""right: a bidirectional LSTM on packed sequences of different lengths with one prediction per sequence; the loss is a mean over sequences, so different lengths per rank do not matter."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(24)
T, F_ = 9, 3
n = torch.randint(2, T + 1, (96,))
valid = (torch.arange(T)[None, :] < n[:, None]).to(torch.get_default_dtype())
values = torch.randn(96, T, F_) * valid[..., None]
X = torch.cat([values, valid[..., None]], dim=-1)
y = (values.sum((1, 2)) > 0).long()


class SeqClassifier(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.lstm = nn.LSTM(F_, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, 2)

    def forward(self, x):
        lengths = x[..., -1].sum(1).round().long().cpu()
        packed = pack_padded_sequence(x[..., :-1], lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, lens = pad_packed_sequence(out, batch_first=True)
        # masked mean over time, per sequence
        pooled = out.sum(1) / lens.to(out.device)[:, None]
        return self.fc(pooled)


def make_net():
    return SeqClassifier()


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    loss_fn = nn.CrossEntropyLoss()
    for seqs, labels in batches:
        optimizer.zero_grad()
        loss = loss_fn(model(seqs), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        scheduler.step()
