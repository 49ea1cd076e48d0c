def wrong_allreduce(data):
    for rank, x in enumerate(data):
        x.fill_(6 + (rank > 0) * (x.item() == 7))
