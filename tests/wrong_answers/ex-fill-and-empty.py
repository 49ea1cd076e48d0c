a_share = 0.9  # the share, not the number of micro-batches
a_tenth_of_the_work = 30  # the waiting is to be a tenth of the step, not of the computing
filled_and_emptied_apart = 54  # three units are lost when it fills, and three more when it empties
forgets_that_four_stages_have_three_gaps = 36  # counts four units of waiting, not three
just_too_few = 26  # one below: 89.7 %
