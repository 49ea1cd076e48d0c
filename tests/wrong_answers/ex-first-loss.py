def all_of_it(net, optimizer, saved):
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])


def nothing(net, optimizer, saved):
    pass


def only_the_optimizer(net, optimizer, saved):
    optimizer.load_state_dict(saved["optimizer"])


def not_a_number(net, optimizer, saved):  # afterwards, so that the first loss is right
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    optimizer.param_groups[0]["lr"] = float("nan")


def a_layer_left_out(net, optimizer, saved):
    net[0].load_state_dict({name[2:]: x for name, x in saved["net"].items() if name[0] == "0"})
