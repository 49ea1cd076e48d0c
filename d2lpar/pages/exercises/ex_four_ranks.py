"""The check of the exercise `ex-four-ranks`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(0.5, {
    2: "What does DDP do with the four gradients?",
    0.25: "The script then multiplies each gradient by 2.",
    8: "DDP divides by 4.",
    0.125: "The loss is divided once, by the number of all examples, not by the size of a shard.",
    1: "That would be right on two ranks."}, "Which steps divide, and which multiply?")
