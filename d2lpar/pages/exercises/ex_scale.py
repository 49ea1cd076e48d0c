"""The check of the exercise `ex-scale`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(1 / 6, {
    1 / 12: "DDP divides by the number of ranks.",
    1 / 4: "A micro-batch is not a rank.",
    1 / 3: "You multiply by the number of ranks twice.",
    1 / 24: "Multiply by the number that DDP divides by.",
    1 / 6 / 3: "You need one mean over all tokens, not a mean of three means.",
    2: "And where is the number of tokens?",
    6: "That is upside down."}, "What does DDP do with the two sums, and how many tokens are there?")
