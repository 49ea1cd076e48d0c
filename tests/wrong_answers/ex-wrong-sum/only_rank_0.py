def wrong_allreduce(data):
    for other in data[1:]:
        data[0].add_(other)
