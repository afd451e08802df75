"""What all Python cases share: their registry, and names for keys."""

import os

CASES = {}


def case(library, topic):
    """Registers a function as the case of this library and topic."""

    def register(function):
        CASES[(library, topic)] = function
        return function

    return register


def address():
    """The server's host and port."""
    host, port = os.environ["STOCK_ADDRESS"].rsplit(":", 1)
    return host, int(port)


def url():
    return "redis://%s:%d/0" % address()


def equal(got, wanted):
    if got != wanted:
        raise AssertionError("expected %r, got %r" % (wanted, got))


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Keys:
    """Names of one case's keys. `spread` goes to any shard; `together` shares
    one, as keys of one operation must."""

    def __init__(self, library, topic):
        self.base = "python:%s:%s" % (library, topic)

    def spread(self, name):
        return "%s:%s" % (self.base, name)

    def together(self, name):
        return "{%s}:%s" % (self.base, name)
