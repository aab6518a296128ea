"""Hosts of a network of their own, one of which is cut off: needs root, iproute2, util-linux and a C compiler."""
