"""Checks the claims of the paper on the data of a study."""

from collections.abc import Sequence

# Importing these modules fills the list of claims.
from slowscale.study import claims_about_error, claims_about_formulas, claims_about_loss  # noqa: F401
from slowscale.study.claims import CLAIMS, Claim, Finding
from slowscale.study.results import Subject


def check_claims(subjects: Sequence[Subject]) -> list[tuple[Claim, Finding]]:
    """Check all claims that can be made about these subjects.

    The claims about the paper's data are checked on the simulated data that take their place. On data of the user, the
    claims about both of the paper's data sets are checked, except those with printed numbers.
    """
    given = any(subject.attribute.source == "given" for subject in subjects)
    found = []
    for one in sorted(CLAIMS, key=lambda claim: claim.place.split()[0]):  # by section of the paper
        if one.about is None:
            concerned = [] if given else list(subjects)
        elif given:
            concerned = [] if one.printed else list(subjects)
        else:
            concerned = [s for s in subjects if one.about in ("both", s.attribute.source)]
        if concerned:
            found.append((one, one.check(concerned)))
    return found
