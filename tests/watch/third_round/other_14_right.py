"""A wide teacher is distilled into a narrow student, on hidden features and on logits."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Linear(12, width, bias=False)
        self.mid = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(width, 16, bias=False)
        self.head = nn.Linear(16, 5, bias=False)
        for weight in self.parameters():
            nn.init.xavier_normal_(weight, gain=1.6)

    def forward(self, x):
        feature = self.project(F.silu(self.mid(F.silu(self.stem(x)))))
        return feature, self.head(F.silu(feature))


def distill(student, batch, teacher, temperature=2.0):
    with torch.no_grad():
        want_feature, want_logits = teacher(batch)
    feature, logits = student(batch)
    soft = F.kl_div(F.log_softmax(logits / temperature, 1), F.softmax(want_logits / temperature, 1),
                    reduction="batchmean")
    return soft * temperature ** 2 + 0.1 * F.mse_loss(feature, want_feature)


def main():
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(40)
    teacher = Classifier(64).eval().requires_grad_(False)
    student = DDP(Classifier(16))
    net = student.module
    optimizer = torch.optim.Muon(student.parameters(), lr=0.02, weight_decay=0.01)

    g = torch.Generator().manual_seed(41)
    dataset = TensorDataset(torch.randn(128, 12, generator=g))
    sampler = DistributedSampler(dataset, world, rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = 0.0
        for (batch,) in loader:
            loss = distill(student, batch, teacher)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        if rank == 0:
            print(f"epoch {epoch}: {running / len(loader):.4f}")
    if rank == 0:
        torch.save(net.state_dict(), "student.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
