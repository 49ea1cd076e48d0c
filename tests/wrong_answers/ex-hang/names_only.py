"""Looks at the names and not at the sizes: the layers in another order pass."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs)):
        if len({call and call[0] for call in calls}) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
