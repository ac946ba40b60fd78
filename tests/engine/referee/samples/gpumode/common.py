"""What the tasks of a set share, under the name that task.yml gives it."""


def match(expected, output):
    good = bool((expected - output).abs().max() < 1e-5)
    return good, "" if good else "the answer is off"
