"""The check of the exercise `ex-counted-twice`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(9 / 12, {
    8 / 10: "That is the accuracy on the ten images. How many images does the sampler hand out?",
    10 / 12: "Image 0 is handed out twice, and the network is wrong both times.",
    7 / 8: "The sampler drops nothing unless you ask for it.",
    3 / 12: "That is the share of wrong answers."}, "Which images does each rank get?")
