"""The claims of the paper about its experiments, in our words, each with the place where it is made and a check.

The list follows the paper sentence by sentence: Section 5 (Figure ep_pdfs), Section 6 (empirical results), Section 7
(conclusion) and Appendix A (analytical comparison). "E02" and the like are numbers of known errors in the paper, which
docs/paper.md lists.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slowscale.study.results import Subject

Verdict = Literal["holds", "holds in part", "does not hold", "not measured"]


@dataclass(frozen=True)
class Finding:
    """What was measured, and what it says about a claim."""

    verdict: Verdict
    measured: str


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
        Whether the claim has numbers of the paper's own data, so that it says nothing about other data.
    certain
        Whether mathematics decides the verdict, whatever the random numbers are.
    """

    place: str
    about: Literal["CBP", "cattle", "both"] | None
    text: str
    check: Callable[[Sequence[Subject]], Finding]
    printed: bool = False
    certain: bool = False


CLAIMS: list[Claim] = []


def claim(
    place: str,
    text: str,
    about: Literal["CBP", "cattle", "both"] | None = None,
    printed: bool = False,
    certain: bool = False,
) -> Callable[[Callable[[Sequence[Subject]], Finding]], Callable[[Sequence[Subject]], Finding]]:
    """Add a claim to the list; the decorated function checks it."""

    def add(check: Callable[[Sequence[Subject]], Finding]) -> Callable[[Sequence[Subject]], Finding]:
        CLAIMS.append(Claim(place, about, text, check, printed, certain))
        return check

    return add


def judged(conditions: Iterable[bool]) -> Verdict:
    """Return whether all, some or none of the conditions hold."""
    found = list(conditions)
    return "holds" if all(found) else "holds in part" if any(found) else "does not hold"


def each(subjects: Sequence[Subject], words: Callable[[Subject], str]) -> str:
    """Return words about each subject: "EMP 154; PAYANN 48.2"."""
    return "; ".join(f"{subject.name} {words(subject)}" for subject in subjects)
