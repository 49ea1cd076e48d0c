def share_memory(replicas):
    return any(p.data_ptr() == q.data_ptr() for p, q in zip(replicas[0], replicas[1]))
