"""What an attacker can find out, as sentences for people."""

from slowscale.core.numbers import percent, share

ONE_IN = {2: "two", 10: "ten", 20: "twenty", 50: "fifty", 100: "a hundred", 1000: "a thousand", 10**6: "a million"}


def alarms(rate: float) -> str:
    """Return a rate of false alarms in words: "one false alarm in twenty".

    >>> alarms(0.05), alarms(0.03)
    ('one false alarm in twenty', 'false alarms in 3 % of cases')
    """
    number = ONE_IN.get(round(1 / rate)) if rate > 0 and abs(1 / rate - round(1 / rate)) < 1e-9 / rate else None
    return f"false alarms in {percent(rate)} of cases" if number is None else f"one false alarm in {number}"


def _often(verb: str, probability: float, bound: str, note: str = "") -> str:
    """Return how often something happens: "is right at most 9.0 % of the time". It is rounded to the safe side."""
    return f"{verb} {bound} {share(probability, 1 if bound == 'at most' else -1)} of the time{note}"


def detection(subject: str, rate: float, power: float, bound: str = "at most", note: str = "") -> str:
    """Return how often the presence of a record is detected.

    >>> detection("a firm with 50 employees", 0.05, 0.0891)
    'With one false alarm in twenty, the presence of a firm with 50 employees is detected at most 9.0 % of the time.'
    """
    return f"With {alarms(rate)}, the presence of {subject} {_often('is detected', power, bound, note)}."


def recognition(value: str, other: str, rate: float, power: float, bound: str = "at most") -> str:
    """Return how often the value of a record is recognised, if there are two candidates."""
    return f"With {alarms(rate)}, it {_often('is recognised', power, bound)} that a record has {other} and not {value}."


def guesses(prior: float, correct: float, bound: str = "at most", note: str = "") -> str:
    """Return how often the best guess is right."""
    return f"The best guess, starting from {percent(prior)}, {_often('is right', correct, bound, note)}."
