"""The check of the exercise `ex-one-first`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    hints = {1: "that is how long it takes if all begin before they wait",
             2: "that is how long it takes if every second rank receives first",
             7: "and then rank 0 has still to send",
             9: "rank 7 begins at once, because rank 0 receives",
             16: "while one sends, the other receives: that is one message"}
    if answer == 8:
        return "Right."
    if answer == float("inf"):
        return "Not yet: rank 0 receives, so rank 7 can send. And then?"
    hint = next((f": {hint}" for number, hint in hints.items() if answer == number), "")
    return f"Not yet: {answer:.4g} ms{hint}. Who sends to a rank that already receives, at the start and after 1 ms?"
