"""All that is sent before the last computation ends, gaps included."""


def hidden_share(spans):
    sends = [s for s in spans if s.what == "all_reduce"]
    last_s = max(s.end_s for s in spans if s.what != "all_reduce")
    hidden_s = sum(max(0, min(s.end_s, last_s) - s.start_s) for s in sends)
    return hidden_s / sum(s.end_s - s.start_s for s in sends)
