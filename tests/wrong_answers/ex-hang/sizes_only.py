"""Looks at the sizes and not at the names: a sum of nine numbers that meets a broadcast of nine passes."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs)):
        if len({call and call[1] for call in calls}) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
