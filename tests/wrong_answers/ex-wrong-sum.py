def always_six(data):
    for rank, x in enumerate(data):
        x.fill_(6 + (rank > 0) * (x.item() == 7))


def another_result(data):
    for x in data:
        x.fill_(sum(y.item() for y in data) / 3)


def only_rank_0(data):
    for other in data[1:]:
        data[0].add_(other)


def six_by_chance_of_the_toy(data):
    total = data[0]
    for other in data[1:]:
        total.add_(other)
    for other in data[1:]:
        other.copy_(data[0] if total.item() == 6 else other)


def the_right_sum(data):
    total = sum(x.clone() for x in data)
    for x in data:
        x.copy_(total)
