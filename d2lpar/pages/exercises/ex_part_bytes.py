"""The check of the exercise `ex-part-bytes`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(7.5, {
    18: "That is stage 0: nothing is divided.",
    2.25: "That is stage 3; stage 2 leaves the parameters whole.",
    12.75: "That is stage 1; stage 2 divides the gradients, too.",
    8.25: "Adam stores two values for each parameter, but momentum only one.",
    1.875: "A float32 value has 4 bytes."}, "What does stage 2 divide by 8?")
