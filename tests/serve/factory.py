"""A small network for the served model."""

from nets import conv_net


def conv():
    return conv_net()
