"""Only sends that lie within one computation."""


def hidden_share(spans):
    sends = [s for s in spans if s.what == "all_reduce"]
    computes = [s for s in spans if s.what != "all_reduce"]
    hidden = [a for a in sends if any(b.start_s <= a.start_s and a.end_s <= b.end_s for b in computes)]
    return sum(s.end_s - s.start_s for s in hidden) / sum(s.end_s - s.start_s for s in sends)
