"""What the parts are longer than the step: gaps hide some of it."""


def hidden_share(spans):
    sends = [s for s in spans if s.what == "all_reduce"]
    step_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
    hidden_s = sum(s.end_s - s.start_s for s in spans) - step_s
    return hidden_s / sum(s.end_s - s.start_s for s in sends)
