all_in_one = 6 + 2 + 3 + 1 + 0.5  # all of them
closed_before_the_cap = 3 + 2  # closes a bucket before the layer that would pass the cap
from_the_first_layer = 6 + 2  # fills from the first layer on: 6, and then 2, 3 and 1
one_cap_for_all = 0.5 + 1 + 3 + 2  # forgets that the first cap is smaller
the_cap_is_kept = 6  # as if no bucket could be larger than its cap
the_first_one = 0.5 + 1  # the first bucket
