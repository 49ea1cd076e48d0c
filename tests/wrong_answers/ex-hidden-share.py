def below_zero(spans):
    """Spans that do not meet count below zero."""
    sends = [s for s in spans if s.what == "all_reduce"]
    computes = [s for s in spans if s.what != "all_reduce"]
    hidden_s = sum(min(a.end_s, b.end_s) - max(a.start_s, b.start_s) for a in sends for b in computes)
    return hidden_s / sum(s.end_s - s.start_s for s in sends)


def of_the_computing(spans):
    """Divided by what is computed, not by what is sent."""
    sends = [s for s in spans if s.what == "all_reduce"]
    computes = [s for s in spans if s.what != "all_reduce"]
    hidden_s = sum(max(0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s)) for a in sends for b in computes)
    return hidden_s / sum(s.end_s - s.start_s for s in computes)


def of_the_step(spans):
    """The share of the step in which it sends, hidden or not."""
    sends = [s for s in spans if s.what == "all_reduce"]
    step_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
    return sum(s.end_s - s.start_s for s in sends) / step_s


def until_the_last_computation(spans):
    """All that is sent before the last computation ends, gaps included."""
    sends = [s for s in spans if s.what == "all_reduce"]
    last_s = max(s.end_s for s in spans if s.what != "all_reduce")
    hidden_s = sum(max(0, min(s.end_s, last_s) - s.start_s) for s in sends)
    return hidden_s / sum(s.end_s - s.start_s for s in sends)


def what_is_longer_than_the_step(spans):
    """What the parts are longer than the step: gaps hide some of it."""
    sends = [s for s in spans if s.what == "all_reduce"]
    step_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
    hidden_s = sum(s.end_s - s.start_s for s in spans) - step_s
    return hidden_s / sum(s.end_s - s.start_s for s in sends)


def whole_sends_only(spans):
    """Only sends that lie within one computation."""
    sends = [s for s in spans if s.what == "all_reduce"]
    computes = [s for s in spans if s.what != "all_reduce"]
    hidden = [a for a in sends if any(b.start_s <= a.start_s and a.end_s <= b.end_s for b in computes)]
    return sum(s.end_s - s.start_s for s in hidden) / sum(s.end_s - s.start_s for s in sends)
