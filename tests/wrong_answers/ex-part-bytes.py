numbers = 1.5 * (1 + 1 / 8 + 1 / 8)  # billions of numbers, not of bytes
of_stage_0 = 4 * 1.5 * 3  # nothing is divided
of_stage_3 = 4 * 1.5 * 3 / 8  # all three are divided, as in stage 3
with_adam = 4 * 1.5 * (1 + 1 / 8 + 2 / 8)  # the optimizer is Adam, with two numbers for each parameter
