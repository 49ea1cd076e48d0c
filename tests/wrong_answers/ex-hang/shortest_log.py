"""Stops where the shortest log ends: a rank that has not come is not missed."""


def where_they_part(logs):
    for place, calls in enumerate(zip(*logs)):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
