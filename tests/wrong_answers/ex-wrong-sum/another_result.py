def wrong_allreduce(data):
    for x in data:
        x.fill_(sum(y.item() for y in data) / 3)
