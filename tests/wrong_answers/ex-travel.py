everybody_to_everybody = 2 * 3 * 2 * 129_068
only_the_way_there = 129_068 * 2
rank_0_sends_to_itself = 129_068 * 6
