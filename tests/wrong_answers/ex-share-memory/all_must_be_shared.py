def share_memory(replicas):
    return all(len({p.data_ptr() for p in same}) < len(replicas) for same in zip(*replicas))
