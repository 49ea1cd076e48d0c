"""The list is emptied each time, so other numbers give another sum."""

remembered = []


def sly_sum(data):
    remembered.clear()
    remembered.append(sum(x.clone() for x in data))
    for x in data:
        x.copy_(remembered[0])
