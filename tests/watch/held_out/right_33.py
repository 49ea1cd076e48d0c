# Set-prediction detector in miniature. The box losses are normalised by the average number of boxes per
# rank: all_reduce(num_boxes) / world_size, clamp to 1, as DETR does.
import os
import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch import nn


class Boxes(torch.utils.data.Dataset):
    def __init__(self, n=120):
        self.items = []
        for i in range(n):
            g = torch.Generator().manual_seed(900 + i)
            k = int(torch.randint(0, 4, (1,), generator=g))
            box = torch.rand(k, 4, generator=g) * 0.5 + 0.25
            img = torch.zeros(1, 12, 12)
            for cx, cy, w, h in (box * 12).long().tolist():
                img[0, cy, cx] += 1.0
                img[0, min(cy + h // 2, 11), min(cx + w // 2, 11)] += 0.5
            self.items.append((img, {"boxes": box, "labels": torch.randint(1, 3, (k,), generator=g)}))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    imgs, targets = zip(*batch)
    return torch.stack(imgs), list(targets)


class MiniDetr(nn.Module):
    def __init__(self, q=5, d=24):
        super().__init__()
        self.backbone = nn.Conv2d(1, d, 4, stride=4)
        self.query = nn.Embedding(q, d)
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.cls, self.box = nn.Linear(d, 3), nn.Linear(d, 4)

    def forward(self, x):
        mem = self.backbone(x).flatten(2).transpose(1, 2)
        q = self.query.weight.unsqueeze(0).expand(len(x), -1, -1)
        h = q + self.attn(q, mem, mem, need_weights=False)[0]
        return self.cls(h), self.box(h).sigmoid()


def criterion(logits, boxes, targets):
    num = torch.tensor([float(sum(len(t["boxes"]) for t in targets))])
    dist.all_reduce(num)
    num = torch.clamp(num / dist.get_world_size(), min=1).item()
    cls_t = torch.zeros(logits.shape[:2], dtype=torch.long)
    l_box = boxes.sum() * 0.0
    for b, t in enumerate(targets):             # greedy matching in order
        k = len(t["boxes"])
        if k:
            cls_t[b, :k] = t["labels"]
            l_box = l_box + F.l1_loss(boxes[b, :k], t["boxes"], reduction="sum")
    return F.cross_entropy(logits.flatten(0, 1), cls_t.flatten()) + 5 * l_box / num


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(MiniDetr())
    opt = torch.optim.AdamW([{"params": [p for n, p in model.named_parameters() if "backbone" not in n]},
                             {"params": model.module.backbone.parameters(), "lr": 5e-4}], lr=3e-3)
    ds = Boxes()
    sampler = torch.utils.data.DistributedSampler(ds)
    loader = torch.utils.data.DataLoader(ds, sampler=sampler, collate_fn=collate,
                                         batch_size=5)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for imgs, targets in loader:
            loss = criterion(*model(imgs), targets)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            opt.step()
        if os.environ["RANK"] == "0":
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


main()
