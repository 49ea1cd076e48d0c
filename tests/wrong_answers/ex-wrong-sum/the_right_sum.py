def wrong_allreduce(data):
    total = sum(x.clone() for x in data)
    for x in data:
        x.copy_(total)
