"""The share of the step in which it sends, hidden or not."""


def hidden_share(spans):
    sends = [s for s in spans if s.what == "all_reduce"]
    step_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
    return sum(s.end_s - s.start_s for s in sends) / step_s
