"""The check of the exercise `ex-hybrid-bytes`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(3.2, {
    0.8: "That is a mesh of 32; here the four rows are copies.",
    6.4: "That divides by the number of machines; the parameters are cut within a machine.",
    25.6: "Nothing is divided.",
    2.4: "Parameters, gradients and two moments: that makes four values for each parameter.",
    1.6: "Adam stores two values for each parameter.",
    0.4: "The parameters alone would take 0.8 GB; and a float32 value has 4 bytes."},
    "By how many is each tensor divided, and how many tensors are there?")
