"""Divided by what is computed, not by what is sent."""


def hidden_share(spans):
    sends = [s for s in spans if s.what == "all_reduce"]
    computes = [s for s in spans if s.what != "all_reduce"]
    hidden_s = sum(max(0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s)) for a in sends for b in computes)
    return hidden_s / sum(s.end_s - s.start_s for s in computes)
