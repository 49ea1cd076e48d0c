def wrong_allreduce(data):
    total = data[0]
    for other in data[1:]:
        total.add_(other)
    for other in data[1:]:
        other.copy_(data[0] if total.item() == 6 else other)
