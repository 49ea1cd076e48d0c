from itertools import zip_longest


def all_is_well(logs):
    """Sees no difference anywhere."""
    return None


def counted_from_one(logs):
    """Counts places from 1."""
    for place, calls in enumerate(zip_longest(*logs), 1):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def last_calls(logs):
    """Compares where the ranks stand now, not where they parted."""
    place = max(map(len, logs)) - 1
    calls = [log[place] if place < len(log) else None for log in logs]
    if place < 0 or len(set(calls)) == 1:
        return None
    parties = {}
    for rank, call in enumerate(calls):
        parties.setdefault(call, []).append(rank)
    return place, parties


def names_only(logs):
    """Looks at the names and not at the sizes: the layers in a different order pass."""
    for place, calls in enumerate(zip_longest(*logs)):
        if len({call and call[0] for call in calls}) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def one_rank_each(logs):
    """Keeps one rank for each call, the last."""
    for place, calls in enumerate(zip_longest(*logs)):
        if len(set(calls)) > 1:
            return place, {call: [rank] for rank, call in enumerate(calls)}
    return None


def shortest_log(logs):
    """Stops where the shortest log ends: a rank that has not come is not missed."""
    for place, calls in enumerate(zip(*logs)):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def two_ranks_only(logs):
    """Compares ranks 0 and 1, as if there were no others."""
    for place, calls in enumerate(zip_longest(*logs)):
        if len(logs) > 1 and calls[0] != calls[1]:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def without_the_missing(logs):
    """Leaves out the ranks that have made no call."""
    for place, calls in enumerate(zip_longest(*logs)):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                if call is not None:
                    parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def eight_ranks(logs):
    """There are never more than eight ranks."""
    for place, calls in enumerate(zip_longest(*logs[:8])):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None


def sizes_only(logs):
    """Looks at the sizes and not at the names: a sum of nine numbers that meets a broadcast of nine passes."""
    for place, calls in enumerate(zip_longest(*logs)):
        if len({call and call[1] for call in calls}) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
