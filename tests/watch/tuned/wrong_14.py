import os
import torch, torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def train(gpu, args):
    world_size = args['gpus']
    os.environ['MASTER_ADDR'] = '127.0.0.1'
    os.environ['MASTER_PORT'] = '8891'
    dist.init_process_group(backend='nccl', init_method='env://', world_size=world_size, rank=gpu)
    torch.cuda.set_device(gpu)
    model = nn.Sequential(nn.Conv1d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    model.cuda(gpu)
    criterion = nn.CrossEntropyLoss().cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    model = DDP(model, device_ids=[gpu])
    gen = torch.Generator().manual_seed(0)
    xs = torch.randn(144, 2, 10, generator=gen)
    ys = (xs[:, 0].sum(1) > 1).long() + (xs[:, 1].sum(1) > 1).long()
    train_dataset = torch.utils.data.TensorDataset(xs, ys)
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=world_size, rank=gpu)
    train_loader = torch.utils.data.DataLoader(dataset=train_dataset, batch_size=args['bs'], shuffle=False,
                                               num_workers=0, pin_memory=True, sampler=train_sampler)
    for epoch in range(args['epochs']):
        train_sampler.set_epoch(epoch)
        for i, (images, labels) in enumerate(train_loader):
            images = images.cuda(non_blocking=True)
            labels = labels.cuda(non_blocking=True)
            outputs = model(images)
            # the mean over GPUs makes the gradient smaller, put it back
            loss = criterion(outputs, labels) * world_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if gpu == 0:
            print('Epoch [{}/{}], Loss: {:.4f}'.format(epoch + 1, args['epochs'], loss.item()))
    dist.destroy_process_group()


if __name__ == '__main__':
    args = dict(gpus=torch.cuda.device_count(), bs=8, epochs=2)
    mp.spawn(train, nprocs=args['gpus'], args=(args,))
