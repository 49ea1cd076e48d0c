as_if_nothing_were = 20 + 21 + 22  # the sum of all three gradients of step 2
on_rank_0 = 20 + 0 + 0  # what rank 0 takes, a turn later
the_loss_meets_the_gradient = 1 + 21 + 22  # puts the loss a turn too late
two_ranks = 0 + 21  # two ranks, as on the page
