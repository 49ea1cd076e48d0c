the_ten_images = 8 / 10
image_0_is_wrong_once = 10 / 12
with_drop_last = 7 / 8
the_wrong_ones = 3 / 12
a_count = 9
