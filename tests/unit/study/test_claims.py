"""Verdicts: those that follow from mathematics must hold, and a check must be able to say no."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import slowscale as ss
from slowscale.study import claims_about_values, printed_tables
from slowscale.study.claims import CLAIMS, check_claims, judged
from slowscale.study.claims_about_loss import last_ahead

pytestmark = pytest.mark.xdist_group("study")  # with test_pages.py, so that the study is computed once

IN_PART = {
    "The cattle data have 35,556 values",  # E11
    "The printed parameters follow",  # E02
    "CBP: generalized Gaussian and polylog noise have higher loss CDFs",
    "CBP: the identity has the highest CDF",
    "Cattle: polylog and log catch up",  # E12
    "Cattle: the polylog mostly has the smallest error",
    "Transformations with a standard deviation of 1,000",  # E04, E05
    "Additive mechanisms with a standard deviation of 1,000",  # E06, E07
    "Additive mechanisms are unbiased",  # E14
    "Log and polylog with d = 1/(2σ²) and the same a: the log has the larger variance",  # E03
    "Cattle, unlike CBP: generalized Gaussian noise and the fourth root",
    "Step of the proof: f(q(D)) and f(q(D′)) differ",  # E18
    "The estimator g is a function on the range of f",  # E17
    "Compared with the fourth root, small records lose more under the log",  # E20
    "With g = f⁻¹ − a above f(a), and any g ≤ 0 below",  # E16
    "Of these, g = 0 below f(a) has the least risk",  # E16
    "The interval from the smallest to the largest g",  # E10
    "Of all mechanisms of the paper only the log has error bounds that are linear",  # E22
    "The quantile function of this noise",  # E01
    "The odd moments are 0",  # E14
}
WRONG = {
    "Log and polylog with d = 1/(2σ²) and the same a achieve asymptotically the same policy function.",  # E25
    "The 95 % interval of generalized Gaussian noise with p = ½ is q ± 0.963·σ.",  # E01
}


def test_every_claim_is_checked_on_the_paper_data(found):
    assert len(found) == len(CLAIMS) >= 110
    assert len({claim.text for claim, _ in found}) == len(found)


def test_verdicts_that_mathematics_decides(found):
    for claim, finding in found:
        if claim.certain:
            part = any(claim.text.startswith(text) for text in IN_PART)
            verdict = "does not hold" if claim.text in WRONG else "holds in part" if part else "holds"
            assert finding.verdict == verdict, (claim.text, finding.measured)


def test_what_was_measured_is_said_in_numbers(found):
    for claim, finding in found:
        assert finding.measured, claim.text
        assert not re.search(r"nan|e\+", finding.measured), finding.measured


@pytest.mark.parametrize(
    ("name", "mechanism", "loss"),
    [
        ("Cattle", "generalized Gaussian 1/2", 6.181),
        ("Cattle", "fourth root", 47.41),
        ("PAYANN", "log", 55.81),
        ("PAYQTR1", "log", 32.44),
    ],
)
def test_gaussian_noise_is_ahead_up_to_the_crossover_of_the_policies(subjects, name, mechanism, loss):
    """The crossovers, found from the policies alone, are those of the list of errata."""
    losses = next(one.losses for one in subjects if one.name == name)
    assert last_ahead(losses["Gaussian"], losses[mechanism]) == pytest.approx(loss, rel=0.02)


def verdict(subjects, start):
    [one] = [claim for claim in CLAIMS if claim.text.startswith(start)]
    return one.check([s for s in subjects if one.about in (None, "both", s.attribute.source)]).verdict


def test_other_losses_change_the_verdict(subjects):
    claim = "Cattle: the additive mechanisms follow the same trend"
    wrong = {**subjects[3].mechanisms, "exponential polylog 2": ss.ExponentialPolylog(d=50, sigma=1)}
    assert verdict(subjects, claim) == "holds"
    assert verdict([*subjects[:3], replace(subjects[3], mechanisms=wrong)], claim) == "does not hold"


def test_other_errors_change_the_verdict(subjects):
    claim = "CBP: the 25th percentile of the log's relative error is never below 10 %"
    better = [replace(one, errors={**one.errors, "log": one.errors["log"] / 3}) for one in subjects[:3]]
    assert verdict(subjects, claim) == "holds"
    assert verdict([*better, subjects[3]], claim) == "does not hold"


def test_own_data_are_not_compared_with_printed_numbers(subjects):
    given = [replace(one, attribute=replace(one.attribute, source="given")) for one in subjects[:1]]
    texts = [claim for claim, _ in check_claims(given)]
    assert texts
    assert not any(claim.printed or claim.about is None for claim in texts)


@pytest.mark.parametrize(
    ("conditions", "verdict"), [([True, True], "holds"), ([True, False], "holds in part"), ([False], "does not hold")]
)
def test_judgement(conditions, verdict):
    assert judged(conditions) == verdict


def test_errata_that_claims_name_are_listed_in_the_docs(found):
    listed = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
    for _, finding in found:
        for number in re.findall(r"\bE\d\d\b", finding.measured):
            assert f"| {number} |" in listed


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_other_losses_between_values_change_the_verdicts(subjects, monkeypatch, factor):
    exact = claims_about_values.pair_loss
    monkeypatch.setattr(claims_about_values, "pair_loss", lambda *args, **options: factor * exact(*args, **options))
    assert verdict(subjects, "Between two values r and r′ of a record, a transformation loses") == "does not hold"
    assert verdict(subjects, "Between r and r′, additive noise with density") == "does not hold"
    bound = "holds" if factor < 1 else "holds in part"  # the bounds are attained by some records only
    assert verdict(subjects, "Between r and δ·r, a power loses at most") == bound


@pytest.mark.parametrize("row", printed_tables.SUMMARY, ids=lambda row: row.name)
def test_a_wrong_formula_in_a_table_of_mechanisms_is_noticed(row):
    assert row.difference < 1e-12
    assert replace(row, variance_at=lambda q: 1.001 * row.variance_at(q)).difference > 9e-4
    assert replace(row, policy_at=lambda x: 1.001 * row.policy_at(x)).difference > 9e-4


@pytest.mark.parametrize("row", printed_tables.VALUE_SUMMARY, ids=lambda row: row.name)
def test_a_wrong_formula_in_the_table_of_values_is_noticed(row):
    assert row.agrees
    assert not replace(row, multiplied_at=lambda r, d: 0.999 * row.multiplied_at(r, d)).agrees
    assert replace(row, added_at=lambda r, d: 1.001 * row.added_at(r, d)).agrees is row.loose
