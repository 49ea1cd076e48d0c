"""right: the classic PyTorch tutorial loop done fully: broadcast of parameters and buffers, local backward, all_reduce of every gradient divided by the world size, then the step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

torch_gen = torch.Generator().manual_seed(21)
X = torch.randn(96, 1, 8, 8, generator=torch_gen)
y = torch.randint(10, (96,), generator=torch_gen)


class LeNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(8 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def make_net():
    return LeNetish()


def broadcast_model(model, root=0):
    with torch.no_grad():
        for t in list(model.parameters()) + list(model.buffers()):
            dist.broadcast(t, src=root)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(net, batches):
    broadcast_model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
    for data, target in batches:
        optimizer.zero_grad()
        loss = F.nll_loss(net(data), target)
        loss.backward()
        average_gradients(net)
        optimizer.step()
