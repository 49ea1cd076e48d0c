def not_written_back(device_tensors, allreduce=allreduce_ring):
    """The sums stay in the large buffers."""
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)


def one_by_one(device_tensors, allreduce=allreduce_ring):
    """Every tensor has an allreduce of its own."""
    for data in zip(*device_tensors):
        allreduce(list(data))


def the_list_gets_the_sums(device_tensors, allreduce=allreduce_ring):
    """The lists are changed, not the tensors in them."""
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for i, part in enumerate(buffer.split([x.numel() for x in tensors])):
            tensors[i] = part.view_as(tensors[i])


def always_a_ring(device_tensors, allreduce=allreduce_ring):
    """The argument is not used."""
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce_ring(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))


def equal_parts(device_tensors, allreduce=allreduce_ring):
    """The buffer is cut into equal parts."""
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.tensor_split(len(tensors))):
            x.copy_(part.view_as(x))


def only_contiguous_tensors(device_tensors, allreduce=allreduce_ring):
    """`view` cannot flatten a transposed tensor."""
    data = [torch.cat([x.view(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view(x.shape))


def tensors_of_one_device_together(device_tensors, allreduce=allreduce_ring):
    """The first tensors of all devices are joined, instead of all tensors of the first device."""
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in zip(*device_tensors)]
    allreduce(data)
    for buffer, tensors in zip(data, zip(*device_tensors)):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))


def buffers_on_the_cpu(device_tensors, allreduce=allreduce_ring):
    """The buffers are always on the CPU."""
    data = []
    for tensors in device_tensors:
        buffer, start = torch.empty(sum(x.numel() for x in tensors)), 0
        for x in tensors:
            buffer[start:start + x.numel()] = x.reshape(-1)
            start += x.numel()
        data.append(buffer)
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))
