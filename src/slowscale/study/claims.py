"""The claims of the paper, in our words, each with the place where it is made and a check.

A claim is the docstring of the function that checks it. The modules `claims_about_*` follow the paper sentence by
sentence: Section 4 (transformations), Section 5 (Figure ep_pdfs), Section 6 (empirical results), Section 7
(conclusion), and Appendices A (analytical comparison), B and C (transformations), D and F (additive noise) and E
(values). Definitions and remarks on other work are left out. "E02" and the like are numbers of known errors in the
paper, which docs/paper.md lists.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slowscale.core.numbers import format_number
from slowscale.study.attributes import NAMES
from slowscale.study.experiments import Subject

Verdict = Literal["holds", "holds in part", "does not hold", "not measured"]
Subjects = Sequence[Subject]
About = Literal["CBP", "cattle", "both"]
GAUSS, POWER, POLYLOG, ROOT, LOG = NAMES
COUNTERPARTS = ((ROOT, POWER), (LOG, POLYLOG))  # a transformation and the additive mechanism with the same growth


@dataclass(frozen=True)
class Finding:
    """What was measured, and what it says about a claim."""

    verdict: Verdict
    measured: str


Check = Callable[[Subjects], Finding]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes
    ----------
    place
        The section and the figure.
    about
        The data that the claim is about, or None if it follows from formulas alone.
    text
        The claim, in our words.
    check
        Returns the finding for the subjects that the claim is about.
    printed
        Whether the claim has numbers of the paper's data, so that it says nothing about other data.
    certain
        Whether mathematics decides the verdict, whatever the random numbers are.
    """

    place: str
    about: About | None
    text: str
    check: Check
    printed: bool = False
    certain: bool = False


CLAIMS: list[Claim] = []


def claim(
    place: str, about: About | None = None, *, printed: bool = False, certain: bool = False
) -> Callable[[Check], Check]:
    """Add a claim to the list: the docstring of the decorated function, which checks it."""

    def add(check: Check) -> Check:
        CLAIMS.append(Claim(place, about, " ".join((check.__doc__ or "").split()), check, printed, certain))
        return check

    return add


def check_claims(subjects: Subjects) -> list[tuple[Claim, Finding]]:
    """Check all claims that can be made about these subjects.

    The claims about the paper's data are checked on the simulated data that take their place. On data of the user, the
    claims about both of the paper's data sets are checked, except those with printed numbers.
    """
    # Importing these modules fills the list of claims.
    from slowscale.study import (  # noqa: F401
        claims_about_error,
        claims_about_formulas,
        claims_about_loss,
        claims_about_noise,
        claims_about_transformations,
        claims_about_values,
    )

    given = is_given(subjects)
    found = []
    for one in sorted(CLAIMS, key=lambda claim: claim.place.split()[0]):  # by section of the paper
        if given:
            concerned = [] if one.about is None or one.printed else list(subjects)
        else:
            concerned = [s for s in subjects if one.about in (None, "both", s.attribute.source)]
        if concerned:
            found.append((one, one.check(concerned)))
    return found


def is_given(subjects: Subjects) -> bool:
    """Return whether the user gave the data."""
    return any(subject.attribute.source == "given" for subject in subjects)


def judged(conditions: Iterable[object]) -> Verdict:
    """Return whether all, some or none of the conditions hold."""
    found = list(conditions)
    return "holds" if all(found) else "holds in part" if any(found) else "does not hold"


def percent(share: float) -> str:
    """Write a share as a percentage."""
    return f"{format_number(100 * share)} %"


def numbers(values: Iterable[float]) -> str:
    """Write numbers as a list."""
    return ", ".join(map(format_number, values))


def each(subjects: Subjects, words: Callable[[Subject], str]) -> str:
    """Return words about each subject: "EMP 154; PAYANN 48.2"."""
    return "; ".join(f"{subject.name} {words(subject)}" for subject in subjects)
