"""A candidate that is the only public function of its file."""


def _twice(x):
    return x + x


def tripled(x, count):
    return _twice(x) + x
