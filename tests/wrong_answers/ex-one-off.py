as_if_nothing_were = 40 + 41 + 42  # the sum of all three gradients of step 2
on_rank_0 = 40 + 0 + 0  # what rank 0 takes, a turn later
the_loss_meets_the_gradient = 1 + 41 + 42  # puts the loss a turn too late
two_ranks = 0 + 41  # two ranks, as on the page
