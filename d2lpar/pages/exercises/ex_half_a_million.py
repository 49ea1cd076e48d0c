"""The check of the exercise `ex-half-a-million`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(8, {
    64: "There are eight GPUs.",
    32: "A micro-batch has four rows.",
    256: "A micro-batch has four rows, and there are eight GPUs.",
    16_384: "The unit of the global batch is the token, and a row has 2,048 of them.",
    65_536: "That is the number of tokens of one pass on all GPUs. How often do they fit into the batch?",
    1 / 8: "That is upside down."}, "How many tokens does one backward pass on all GPUs have?")
