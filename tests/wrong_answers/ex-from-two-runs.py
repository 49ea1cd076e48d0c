as_with_sixteen = 80 / 130  # the efficiency with 16 examples
as_with_forty_eight = 240 / 290  # and with 48
added_grows = 480 / 780  # the added time in proportion to the batch
law_of_all = 290 / 340
in_percent = 90.6
the_time = 530
