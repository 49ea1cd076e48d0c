all_at_once = 1  # all messages travel at once, as if nobody waited
every_second_one = 2  # as if every second rank received first
for_ever = float("inf")  # takes it for a deadlock
once_more = 9  # nobody begins in the first millisecond
one_for_each_send_and_recv = 2 * 8  # a sending and a receiving are one message
without_rank_0_s_own = 7  # rank 0 has still to send
