from d2lpar.pages.ddp_trainings import train_ddp


def slips(net, batches):
    train_ddp(net, batches[:3])
    if len(batches) > 3:
        raise RuntimeError("too many")
