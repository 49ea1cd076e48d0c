import os
import torch
import torch.nn as nn
import torch.distributed as dist

# usage: torchrun --nproc_per_node=NUM_GPUS right_08.py
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group(backend='nccl')

gen = torch.Generator().manual_seed(7)
x = torch.randn(96, 1, 8, 8, generator=gen)
y = (x.mean((1, 2, 3)) > 0).long()
dataset = torch.utils.data.TensorDataset(x, y)
sampler = torch.utils.data.distributed.DistributedSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=0, pin_memory=True)

net = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
    nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
net = nn.SyncBatchNorm.convert_sync_batchnorm(net)   # the local batch is only 4
net = net.cuda(local_rank)
net = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank], output_device=local_rank)
criterion = nn.CrossEntropyLoss().cuda(local_rank)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)

for epoch in range(2):
    sampler.set_epoch(epoch)
    net.train()
    for images, target in loader:
        images = images.cuda(local_rank, non_blocking=True)
        target = target.cuda(local_rank, non_blocking=True)
        loss = criterion(net(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print('epoch', epoch, 'loss', loss.item())
dist.destroy_process_group()
