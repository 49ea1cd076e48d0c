"""The check of the exercise `ex-factor`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(0.75, {
    -1: "That is the mean of the two means. What is the right mean?",
    0.25: "That is how much is missing. What is the factor?",
    4 / 3: "That is upside down.",
    9 / 8: "That is the factor for the cut after the first example.",
    1: "That would be right for shards of equal size."}, "What are the two means?")
