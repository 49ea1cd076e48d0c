"""right: CTC on a recurrent net; the 'mean' reduction divides each example by its own target length and then averages over examples, so equal shards average to the minibatch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

FRAMES, MEL, CHARS, MAXLEN = 12, 4, 6, 4
torch.manual_seed(41)
X = torch.randn(96, FRAMES, MEL)
target_len = torch.randint(1, MAXLEN + 1, (96, 1))
targets = torch.randint(1, CHARS, (96, MAXLEN))      # 0 is the blank
y = torch.cat([target_len, targets], dim=1)


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(MEL, 10, 3, padding=1)
        self.rnn = nn.RNN(10, 10, nonlinearity="tanh", batch_first=True)
        self.proj = nn.Linear(10, CHARS)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.proj(h)


def make_net():
    return Speech()


def train(net, batches):
    model = DistributedDataParallel(net)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    for audio, packed in batches:
        log_probs = model(audio).log_softmax(-1).transpose(0, 1)        # T x B x C
        in_len = torch.full((audio.size(0),), FRAMES, dtype=torch.long)
        loss = ctc(log_probs, packed[:, 1:].contiguous(), in_len, packed[:, 0].contiguous())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
