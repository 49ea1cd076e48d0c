def share_memory(replicas):
    return replicas[0][1].data_ptr() == replicas[1][1].data_ptr()
