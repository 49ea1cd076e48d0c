as_it_is = 100 / 60
nothing_but_the_shard = 100 / 50
without_the_update = 100 / (50 + 4)
without_contention = 100 / (50 + 2)
in_milliseconds = 50 + 4 + 2
upside_down = 56 / 100
the_update_is_halved = 100 / (50 + 4 + 1)
