"""Mean-teacher training: a slowly moving teacher gives soft targets to the student."""
import argparse
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--resume", default=None)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--decay", type=float, default=0.95)
args = parser.parse_args()


@torch.no_grad()
def follow(teacher, student, decay):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(8)
X = torch.randn(96, 10, generator=g)
Y = (X @ torch.randn(10, 5, generator=g)).argmax(1)
dataset = TensorDataset(X, Y)
sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)

torch.manual_seed(2)
student = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
start = 0
if args.resume is not None:
    checkpoint = torch.load(args.resume)
    student.load_state_dict(checkpoint["student"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start = checkpoint["epoch"] + 1
teacher = copy.deepcopy(student).requires_grad_(False)
if args.resume is not None and rank == 0:
    teacher.load_state_dict(checkpoint["teacher"])
model = DDP(student)

for epoch in range(start, args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = model(x)
        loss = F.cross_entropy(logits, y) + 2.0 * F.kl_div(logits.log_softmax(1), soft, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, args.decay)
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
        torch.save({"student": student.state_dict(), "teacher": teacher.state_dict(),
                    "optimizer": optimizer.state_dict(), "epoch": epoch}, f"mt_epoch{epoch}.pt")
dist.barrier()
dist.destroy_process_group()
