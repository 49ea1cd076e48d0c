"""right: autocast and a GradScaler around DDP; the averaged gradients are unscaled before clipping, and since the scale is the same power of two on all ranks it changes nothing."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(6)
X = torch.randn(96, 3, 6, 6)
y = torch.randint(0, 5, (96,))


def conv_bn(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.GroupNorm(1, cout), nn.Hardswish())


def make_net():
    return nn.Sequential(
        conv_bn(3, 8, 1),
        conv_bn(8, 12, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(12, 5),
    )


def train(net, batches):
    device_type = "cuda" if torch.cuda.is_available() and next(net.parameters()).is_cuda else "cpu"
    net = DDP(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device_type, init_scale=2.0 ** 10)
    ce = nn.CrossEntropyLoss(label_smoothing=0.1)

    for images, labels in batches:
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device_type, dtype=torch.bfloat16):
            logits = net(images)
            loss = ce(logits, labels)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.3)
        scaler.step(opt)
        scaler.update()
