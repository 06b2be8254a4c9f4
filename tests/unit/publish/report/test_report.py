"""Reports: all that a reader needs, everything escaped, and no number that is confidential."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.releases import with_table
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting import Loss, explain
from slowscale.accounting.charge import read_mechanism
from slowscale.accounting.explanation import at_most, titles
from slowscale.accounting.sizes import RecordSize
from slowscale.core.numbers import error_figure, format_number, grid, power_of_ten, published, rounded_figure, share
from slowscale.policy import (
    ZCDP,
    ArsinhNormalPolicy,
    ConstantPolicy,
    LogPolicy,
    MaxPolicy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    TransformationPolicy,
    UnitSplittingPolicy,
)
from slowscale.publish.charts import Mark, _name_sides
from slowscale.publish.report import write_confidential_report, write_report
from slowscale.publish.report.guarantee import growth
from slowscale.publish.report.mathml import policy_equation
from slowscale.publish.report.pages import Scope
from slowscale.release.columns import explain_columns

VOID = {"meta", "br", "hr", "img", "input", "link"}
KEYS = ss.Keys.cross({"county": ["01001", "01003", "01005"]})
HUGE = 10.0**9
NASTY = '<script>alert("$x")</script>&\\text{@}'


class Reader(HTMLParser):
    """Reads a page as a tree must be: every element closed, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    @property
    def words(self):
        return re.sub(r"[ \n]+", " ", " ".join(self.text))

    def found(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def records(seed, rows):
    """Return records whose values, sums and number are unlike any number that a report holds otherwise."""
    generator = np.random.default_rng(seed)
    county = generator.choice(["01001", "01003", "01005"], rows)
    return pd.DataFrame({"county": county, "emp": generator.integers(41_113, 97_777, rows), "pay": 613.25})


def released(frame, **options):
    mechanisms = {"emp": ss.Gaussian(sigma=HUGE), "pay": ss.ExponentialPolylog(d=0.05)}
    session = ss.Session(frame, bits=Recorded(1))
    return session.sum(mechanisms, keys=KEYS, count=ss.Gaussian(sigma=HUGE), **options), session


@pytest.fixture(scope="module")
def secret():
    return records(7, 4_321)


@pytest.fixture(scope="module")
def release(secret):
    return released(secret, where="emp > 0", derive={"half": "emp / 2"})[0].ratio("pay", "emp")


@pytest.fixture(scope="module")
def text(release, tmp_path_factory):
    return release.report(tmp_path_factory.mktemp("report") / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


def test_all_parts_are_there_in_order(read):
    headings = [tag for tag, _ in read.tags if tag in ("h1", "h2")]
    assert headings == ["h1"] + ["h2"] * 7
    anchors = [attributes["id"] for attributes in read.found("h2")]
    assert anchors == ["published", "guarantee", "error", "attacker", "assumptions", "columns", "versions"]
    assert "Sums of emp and pay and the number of records, by county" in read.words
    assert "what can an attacker learn about a record of size …?" in read.words.lower()
    assert len(read.ids) == len(set(read.ids))
    targets = {link["href"].removeprefix("#") for link in read.found("a")}
    assert targets <= set(read.ids)


def test_facts_are_told(read, release):
    for said in (
        release.facts.protects,
        release.facts.tables["table"].keys.assumption,
        release.facts.id,
        release.facts.created,
        release.facts.columns["emp"].described,
        "emp > 0",
        "half = emp / 2",
        "pay_per_emp",
        f"slowscale {ss.__version__}",
    ):
        assert said in read.words, said


def test_what_an_attacker_learns(read, release):
    """By the best possible test; a column with a pure guarantee states its PRDP loss as well."""
    m = ss.ExponentialPolylog(d=0.05)
    for size in (10, 1e4, 1e7, 1e10, 1e13, 1e16):
        found = ss.attacker(m, size)
        assert at_most(m.tight_policy(size)) in cells(read, "pay", "PRzCDP loss")
        assert at_most(m.pure_policy(size)) in cells(read, "pay", "PRDP loss")
        assert at_most(found.epsilon(1e-6)) in cells(read, "pay", titles()["epsilon"])
        assert share(found.power(0.05)) in cells(read, "pay", titles()["detected"])
        assert share(found.posterior(0.5).correct) in cells(read, "pay", titles()["guessed"])
    assert "bound from the loss" not in cells(read, "pay", titles()["guessed"])
    assert "can do better than the table says" in read.words


def test_all_columns_together(read, release):
    """The loss of a record over all its columns, the count included, stands in the table."""
    assert "All columns together" in read.words
    for size in (1e7, 1e13):
        total = release.policy({"emp": size, "pay": size})
        noises = [ss.Gaussian(sigma=HUGE), ss.ExponentialPolylog(d=0.05), ss.Gaussian(sigma=HUGE)]
        found = ss.attacker(noises, [size, size, 1])
        assert at_most(total) in cells(read, "All columns together", "PRzCDP loss")
        assert share(found.power(0.05)) in cells(read, "All columns together", titles()["detected"])


def test_example_rows(read, release):
    row = release.table.slice(0, 1).to_pylist()[0]
    assert f"{published(row['emp'], Fraction(1))} ({format_number(row['emp_se'])})" in read.words
    assert f"{math.floor(row['emp_low']):,} to {math.ceil(row['emp_high']):,}".replace("-", "−") in read.words


def test_charts_have_text_alternatives(read, text):
    pictures = read.found("svg")
    assert len(pictures) == 1  # all errors are the same for all sums, and so are in a table only
    for picture in pictures:
        assert picture["role"] == "img"
        assert all(name in read.ids for name in picture["aria-labelledby"].split())
        assert "width" not in picture
    assert len(read.found("details")) == len(read.found("summary")) == 2  # the data of the chart, and the columns
    assert "#0072B2" in text  # Okabe and Ito's blue
    assert 'fill="currentColor"' in text


def test_formulas_are_rendered(read, text):
    assert len(read.found("math")) == 3
    told = [paragraph["aria-label"] for paragraph in read.found("p") if "aria-label" in paragraph]
    assert told[0] == "The policy: emp² / (2·1e+09²)"
    assert told[1].startswith(
        "The policy: min(tight(pay; ExponentialPolylog, certified within 1 %); tanh(ε/2)·ε with ε = "
    )
    assert "<mi>emp</mi>" in text


def test_the_table_of_errors_agrees_with_what_is_published(release, read):
    (error,) = set(release.table["pay_se"].to_pylist())
    words = read.words[read.words.index("Errors of the numbers with noise.") :]
    (low,), (high,) = (
        noise for noise in (ss.ExponentialPolylog(d=0.05).noise.interval(level)[1:] for level in (0.95, 0.999))
    )
    assert f"pay all cells {rounded_figure(error)} ± {error_figure(math.ceil(low + 0.5))}" in words
    assert f"{error_figure(math.ceil(high + 0.5))} count all cells" in words


def test_nothing_is_fetched(text):
    """The only addresses are the names of XML languages, which nothing fetches."""
    assert set(re.findall(r"""(\S+)=["']https?://""", text)) <= {"xmlns", "xmlns:xlink"}
    assert len(re.findall(r"https?://", text)) == len(re.findall(r"""xmlns(?::xlink)?=["']https?://""", text))
    assert not re.search(r"<(script|link|img|iframe|object|embed|base)\b", text)
    assert not re.search(r"@import|url\(|\bsrc=|xlink:href", text)
    assert "default-src 'none'" in text


def numbers(text):
    """Return all numbers of a page, also those within charts, without their commas."""
    return {found.replace(",", "") for found in re.findall(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?!\w)", text)}


def test_no_confidential_number(text, secret):
    sums = secret.groupby("county")[["emp", "pay"]].sum()
    counts = secret.groupby("county").size()
    confidential = {str(value) for value in secret["emp"]} | {"613.25", str(len(secret)), str(secret["emp"].sum())}
    confidential |= {str(value) for value in sums["emp"]} | {str(value) for value in counts}
    confidential |= {f"{value:.{places}f}" for value in [*sums["pay"], secret["pay"].sum()] for places in (0, 1, 2)}
    assert len(confidential) > 4_000
    assert not numbers(text) & confidential


def test_the_test_would_see_a_confidential_number(text, secret):
    assert numbers(text + f"<td>{secret['emp'].sum():,}</td>") & {str(secret["emp"].sum())}


def test_other_records_the_same_report(release, tmp_path):
    """A report depends on records through the published table only: with that table, others give the very same page."""
    other = released(records(8, 1_234), where="emp > 0", derive={"half": "emp / 2"})[0].ratio("pay", "emp")
    assert not other.table.equals(release.table)
    whole = other.facts.with_(id=release.facts.id, created=release.facts.created)
    table = replace(other["table"], numbers=release.table, whole=whole)
    swapped = replace(other, tables={"table": table}, facts=whole)
    pages = [made.report(tmp_path / f"{i}.html").read_bytes() for i, made in enumerate((release, swapped))]
    assert pages[0] == pages[1]


def test_read_back_the_same_report(release, tmp_path):
    back = ss.read_release(release.to_parquet(tmp_path / "out.parquet"))
    pages = [made.report(tmp_path / f"{i}.html").read_bytes() for i, made in enumerate((release, back))]
    assert pages[0] == pages[1]


def test_everything_is_escaped(tmp_path):
    frame = pd.DataFrame({"place": [NASTY, "b"], NASTY: [1, 2]})
    keys = ss.Keys.from_frame({"place": [NASTY, "</td></table><img src=x>"]})
    session = ss.Session(frame, bits=Recorded(1))
    made = session.sum({NASTY: ss.Root(k=4, sigma=1)}, keys=keys, partition="place")
    text = made.report(tmp_path / "report.html", spent=session.spent).read_text(encoding="utf-8")
    read = Reader(text)
    assert not read.found("script")
    assert not read.found("img")
    assert not re.search(r"<(script|img)", text)
    assert read.words.count(NASTY) > 5
    assert f"[{NASTY}]" in read.words  # in the formula


def test_not_private_banner(text, tmp_path):
    assert "NOT PRIVATE" in text
    made = ss.Session(records(1, 10)).sum({"emp": ss.Gaussian(sigma=HUGE)}, keys=KEYS)
    private = made.report(tmp_path / "private.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE" not in private
    assert "from secret bits" in private


def test_ledger(tmp_path):
    session = ss.Session(records(1, 10), ledger=tmp_path / "l.ledger", bits=Recorded(1))
    session.count(keys=KEYS, mechanism=ss.Gaussian(sigma=10))
    made = session.sum({"emp": ss.Root(k=4, sigma=1)}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html", spent=session.spent).read_text(encoding="utf-8"))
    assert "by all releases (2 so far) together" in read.words
    assert made.facts.ledger.hash in read.words
    assert f"as entry {made.facts.ledger.entry}." in read.words
    assert format_number(session.spent({"emp": 1_000})) in read.words
    assert "the largest record may be larger than all of them" in read.words
    assert "being counted 0.005" in read.words
    without = Reader(made.report(tmp_path / "s.html").read_text(encoding="utf-8"))
    assert made.facts.ledger.hash in without.words
    assert "by everything released so far" not in without.words


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (ss.Transformation(np.log1p, np.expm1, sigma=0.5, a=0), "uses a user-given function"),
        (ss.ExponentialPolylog(d=2.0, p=1), "no standard error, or one too large"),
        (ss.ExponentialPolylog(d=2.0, p=1), "The noise has no mean"),
        (ss.Gaussian(sigma=1e-170), "∞"),  # losses beyond what floats can hold
        (ss.UnitSplitting(threshold=10, sigma=50), "in steps"),
        (ss.Log(sigma=0.3, estimator="median"), "None in the median"),
        (ss.Root(k=4, sigma=1), "use the interval, not ±2 standard errors"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_every_mechanism(mechanism, said, tmp_path):
    accounting = "closed" if said == "in steps" else "tight"  # by its tight policy, unit splitting has no steps
    made = ss.Session(records(1, 10), accounting=accounting, bits=Recorded(1)).sum({"emp": mechanism}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert said in read.words
    assert len(read.found("svg")) >= 1 or "no values that logarithmic axes can show" in read.words


def test_totals_entities_and_treatments(tmp_path):
    frame = records(1, 10).assign(firm=1)
    session = ss.Session(frame, protect="firm", bits=Recorded(1))
    options = {"nulls": "zero", "negatives": "zero", "nonnegative": True, "unit": {"pay": "0.01"}, "level": 0.9}
    made = session.sum(
        {"emp": ss.Root(k=4, sigma=1), "pay": ss.Gaussian(sigma=HUGE)}, count=ss.Gaussian(sigma=5), **options
    )
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    for said in ("in total", "one firm", "Upwards: results below 0", "90 %", "0.01", "Counted as 0.", "published as 0"):
        assert said in read.words, said
    counted = ss.Session(frame, bits=Recorded(1)).count(mechanism=ss.Gaussian(sigma=5))
    read = Reader(counted.report(tmp_path / "c.html").read_text(encoding="utf-8"))
    assert "Number of records, in total" in read.words
    assert "The limit is the same for all" in read.words


def test_many_columns(tmp_path):
    frame = pd.DataFrame({f"column {i}": [i, 2 * i] for i in range(12)})
    made = ss.Session(frame, bits=Recorded(1)).sum({name: ss.Gaussian(sigma=10 + i) for i, name in enumerate(frame)})
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Sums of column 0, column 1, column 2 and 9 more, in total" in read.words
    assert "An excerpt: the first 6 of 12 columns." in read.words


def test_files_are_not_lost(release, tmp_path):
    path = release.report(tmp_path / "report.html")
    before = path.read_bytes()
    path.write_bytes(b"other")
    with pytest.raises(ss.ParameterError, match=r"report\.html already exists"):
        release.report(path)
    assert path.read_bytes() == b"other"
    assert write_report(release, path, overwrite=True).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_wrong_arguments(release, tmp_path):
    with refused(ss.ParameterError, "path"):
        release.report(tmp_path / "report.pdf")
    with refused(ss.ParameterTypeError, "spent", code="type"):
        release.report(tmp_path / "r.html", spent=1.0)
    with refused(ss.ParameterTypeError, "release", code="type"):
        write_report("release", tmp_path / "r.html")
    with refused(ss.ParameterTypeError, "release", code="type"):
        write_confidential_report(None, tmp_path / "r.html", None)
    with refused(ss.ParameterTypeError, "session", code="type"):
        release.confidential_report(tmp_path / "r.html", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_missing_packages(release, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with refused(ss.EngineError, "a chart", code="not-installed"):
        release.report(tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_packages_are_imported_when_needed():
    code = "import slowscale.publish.report, sys; print({'altair', 'vl_convert'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_confidential_report(secret, tmp_path):
    made, session = released(secret)
    text = made.confidential_report(tmp_path / "c.html", session).read_text(encoding="utf-8")
    read = Reader(text)
    assert "CONFIDENTIAL: never publish this report" in read.words
    losses = session.losses(made)
    assert f"{losses.records:,} records" in read.words
    for loss in (*losses.quantiles.values(), *losses.largest.values()):
        assert format_number(loss) in read.words
    assert len(read.found("svg")) == 1
    with pytest.raises(ss.ParameterError, match="exists"):
        made.confidential_report(tmp_path / "c.html", session)
    again = made.confidential_report(tmp_path / "d.html", ss.Session(secret)).read_text(encoding="utf-8")
    assert again == text


def test_a_promise_is_shown_with_its_points_and_its_curve(tmp_path):
    session = ss.Session(pd.DataFrame({"emp": [1, 2, 3]}), bits=Recorded(1))
    made = session.sum({"emp": ss.FromPolicy([(10, 0.1), (100, 0.8)])})
    page = made.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Noise that is made from the promised losses is added to the sum." in page
    assert "FromPolicy(promise=[(10, 0.1), (100, 0.8)], sigma=1)" in page
    assert page.count("<mtr>") == 2
    assert "<svg" in page


def test_rebuilt_mechanisms():
    for mechanism in (
        ss.Gaussian(sigma=2),
        ss.Root(k=4, sigma=0.5, a=1),
        ss.Log(sigma=0.3),
        ss.ExponentialPolylog(d=0.3),
        ss.ArsinhNormal(scale=5, shape=1.6),
        ss.UnitSplitting(threshold=1, sigma=2),
        ss.FromPolicy([(10, 0.1), (100, 0.8)]),
    ):
        assert read_mechanism(mechanism.to_dict()) == mechanism
    for description in (None, {"type": "Session"}, {"type": "Transformation", "f": "numpy.log1p"}, {}):
        assert read_mechanism(description) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (0.01234, "0.0123"), (4.567, "4.57"), (999.4, "999"), (999.7, "1,000"), (2e8 + 0.2, "200,000,000"),
        (1e13, "1.00\u00a0×\u00a010¹³"), (3e-7, "3.00\u00a0×\u00a010⁻⁷"),
        (-12.5, "−12.5"), (math.inf, "∞"), (math.nan, "unknown"),
    ],
)  # fmt: skip
def test_figures(value, written):
    assert format_number(value) == written


def test_numbers_on_their_grid():
    assert [published(x, Fraction(1)) for x in (1234, -5, 1234.4, None)] == ["1,234", "−5", "1,234", "unknown"]
    assert [published(12.345, Fraction(1, 100), side) for side in (-1, 0, 1)] == ["12.34", "12.35", "12.35"]
    assert published(-12.5, Fraction(1), -1) == "−13"
    assert published(-math.inf, Fraction(1), -1) == "−∞"
    assert [grid(Fraction(unit)) for unit in ("1", "1000", "1/100", "1/3")] == ["1", "1,000", "0.01", "1/3"]
    assert [power_of_ten(e) for e in (-5, -2, 0, 6, 7)] == ["10⁻⁵", "0.01", "1", "1,000,000", "10⁷"]


def test_formulas_with_large_and_small_numbers():
    drawn = policy_equation(ss.Gaussian(sigma=2.5e9).policy, "annual pay")
    assert "<mn>2.5</mn>" in drawn
    assert "<mn>9</mn>" in drawn
    assert "<mtext>[annual pay]</mtext>" in drawn
    assert "<mi>e</mi>" not in drawn


def number_in(words):
    """Return a number as `format_number` writes it."""
    text = words.replace(",", "").replace("\u00a0", "")
    digits, _, power = text.partition("×10")
    return float(digits) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)


NUMBER = r"(\d[\d,.]*(?:\u00a0×\u00a010[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)"
BETWEEN = re.compile(rf"rom size {NUMBER} to {NUMBER} the loss (?:grows {NUMBER}-fold|(stays the same))")
THROUGHOUT = re.compile(rf"Ten times the size means {NUMBER} times the loss, at every size shown")


def any_policy():
    """Return policies of every kind, with parameters from their whole typical ranges."""
    real = lambda low, high: st.floats(math.log(low), math.log(high)).map(math.exp)  # noqa: E731
    sigmas = real(1e-3, 1e9)
    pures = st.one_of(
        st.builds(PowerPolicy, sigma=sigmas, p=st.floats(0.1, 1)),
        st.builds(ArsinhNormalPolicy, scale=sigmas, shape=st.floats(0.1, 6)),
        st.builds(
            lambda d, sigma, p: PolylogPolicy(d=d + (p == 1), sigma=sigma, a=None, p=p),
            real(0.02, 50),
            sigmas,
            st.one_of(st.just(1.0), st.floats(1.5, 4)),
        ),
    )
    simple = st.one_of(
        st.builds(RootPolicy, k=st.integers(1, 8), sigma=sigmas, a=st.one_of(st.just(0.0), real(1e-3, 1e6))),
        st.builds(LogPolicy, sigma=real(0.01, 5), a=real(0.01, 1e6)),
        st.builds(TransformationPolicy, st.just(np.log1p), real(0.01, 100)),
        st.builds(UnitSplittingPolicy, threshold=real(1, 1e6), sigma=sigmas),
        st.builds(ConstantPolicy, st.floats(0, 10)),
        pures.map(TanhPolicy),
        pures,
    )
    combined = st.lists(simple.filter(lambda policy: policy.notion == ZCDP), min_size=2, max_size=3).map(tuple)
    return st.one_of(
        simple, combined.map(SumPolicy), combined.map(MaxPolicy), st.builds(TimesPolicy, st.integers(2, 50), simple)
    )


@settings(max_examples=400, deadline=None)
@given(any_policy(), st.integers(-2, 8), st.integers(0, 12))
def test_what_is_said_of_growth_is_true_of_the_policy(policy, low, span):
    """Every number in the words is the policy's own: a line of slope 2 is never called a logarithm."""
    low, high = 10.0**low, 10.0 ** (low + span)
    words = growth(policy, low, high)
    said = 0
    for start, end, factor, _ in BETWEEN.findall(words):
        said += 1
        start, end = number_in(start), number_in(end)
        assert end == pytest.approx(10 * start)
        assert low * 0.99 <= start <= max(low, high / 10) * 1.01
        assert policy(end) / policy(start) == pytest.approx(number_in(factor) if factor else 1, rel=0.006)
    for factor in THROUGHOUT.findall(words):
        said += 1
        sizes = np.geomspace(low, max(high / 10, low), 40)
        assert policy(10 * sizes) / policy(sizes) == pytest.approx(number_in(factor), rel=0.011)
    if "loss is the same from size" in words:
        said += 1
        assert np.ptp(policy(np.geomspace(low, high, 40))) == 0
    assert said or policy(low) in (0, math.inf), words
    assert not re.search("logarithm|slowly|root", words)


def test_growth_in_words():
    assert (
        growth(ss.Gaussian(sigma=1).policy, 1, 1e6)
        == "Ten times the size means 100 times the loss, at every size shown."
    )
    assert "3.16 times the loss" in growth(ss.Root(k=4, sigma=1).policy, 1, 1e6)
    near = growth(ss.ExponentialPolylog(d=0.2, sigma=1e4).policy, 100, 4e10)
    assert near == (
        "From size 100 to 1,000 the loss grows 100-fold; from size 4,000,000,000 to 40,000,000,000 the loss grows "
        "1.39-fold."
    )
    assert "in steps" in growth(ss.UnitSplitting(threshold=10, sigma=50).policy, 1, 1e6)
    assert "loss is the same from size" in growth(ConstantPolicy(0.5), 1, 1e6)


FIRMS = {
    "median firm": {"emp": 12, "pay": 400_000},
    "Largest firm": {"emp": 150_000, "pay": 4e10},
}


@pytest.fixture(scope="module")
def dollars(tmp_path_factory):
    """A report about data in dollars, with stated sizes."""
    session = ss.Session(records(3, 100), bits=Recorded(1))
    mechanisms = {"emp": ss.ExponentialPolylog(d=0.5, sigma=20), "pay": ss.Root(k=4, sigma=25)}
    made = session.sum(mechanisms, keys=KEYS, count=ss.GeneralizedGaussian(sigma=3, p=1))
    path = made.report(tmp_path_factory.mktemp("dollars") / "r.html", spent=session.spent, sizes=FIRMS)
    return made, session.spent, Reader(path.read_text(encoding="utf-8"))


def cells(read, group, line):
    """Return the cells of a line in a part of the attacker's table."""
    words = read.words[read.words.index("Table 4.") :]
    after = words[words.index(f" {group} ") :]
    start = after.index(line) + len(line)
    return after[start : start + 200]


def test_stated_sizes_are_used_everywhere(dollars):
    """The largest record's loss stands in the policy's words, in the attacker's table and in the ledger's."""
    made, spent, read = dollars
    words, largest = read.words, FIRMS["Largest firm"]
    pay = made.policy.column("pay")(4e10)
    assert f"{at_most(pay)} at size 40,000,000,000 (Largest firm)" in words
    assert words.count("median firm") >= 5
    assert at_most(pay) in cells(read, "pay", "PRzCDP loss")
    assert "40,000,000,000" in cells(read, "pay", "Value in this column")
    assert at_most(made.policy(largest)) in cells(read, "All columns together", "PRzCDP loss")
    ledger = words[words.index("Table 5.") :]
    assert f"{at_most(spent.column('pay')(4e10))} at 40,000,000,000" in ledger
    assert f"PRzCDP loss {at_most(spent(FIRMS['median firm']))} {at_most(spent(largest))}" in ledger
    assert "stated by the curator as public knowledge" in words
    assert "follow from the noise" not in words


def test_charts_reach_the_stated_sizes(dollars):
    _, _, read = dollars
    assert "pay: from 0.0008 at 1 to 253 at 100,000,000,000." in read.words
    error = ss.Root(k=4, sigma=25).std(1e13)
    assert re.search(rf"pay: from \S+ at 1 to {format_number(error)} at 1\.00\u00a0×\u00a010¹³", read.words)


def test_names_in_charts_do_not_cover_one_another():
    """Names that have no room are left out: the table has them all."""
    near = [
        Mark("a", 10.0**x, 10.0**y, "firm at the 99th percentile") for x in (1, 1.01, 1.02) for y in (0, 0.01, 0.02)
    ]
    apart = [Mark("a", 1e3, 1e2, "median firm"), Mark("a", 1e9, 1e2, "largest firm")]
    place = lambda value: 80 * math.log10(value)  # noqa: E731
    named = [side for side in _name_sides(near, place, place) if side is not None]
    assert 1 <= len(named) <= 4
    assert len({(side["align"], side["dy"]) for side in named}) == len(named)
    assert all(_name_sides(apart, place, place))
    assert _name_sides([Mark("a", 1e8, 1e2, "largest firm")], place, place)[0]["align"] == "left"
    assert _name_sides([Mark("a", 9e9, 1e2, "largest firm")], place, place)[0]["align"] == "right"  # near the end


def test_a_small_count_is_still_drawn(tmp_path):
    made = ss.Session(records(1, 10), bits=Recorded(1)).count(mechanism=ss.Gaussian(sigma=1e6))
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(read.found("svg")) == 1


def test_a_count_is_one_number(dollars):
    _, _, read = dollars
    pure = ss.GeneralizedGaussian(sigma=3, p=1).pure_policy(1)
    said = cells(read, "count (every record counts as 1)", "PRDP loss")
    assert said.split("Presence")[0].strip() == at_most(pure)
    spans = [cell["colspan"] for cell in read.found("td") if cell.get("colspan", "1") != "1"]
    assert (
        spans == ["2"] * 10
    )  # all losses, guesses, detection, ε and the value in table 3, and the loss in the ledger's


def test_sizes_that_nobody_stated(tmp_path):
    """For data in dollars the sizes reach where losses are large, not just to 1,000,000."""
    made = ss.Session(records(1, 10), bits=Recorded(1)).sum({"pay": ss.Gaussian(sigma=1e9)}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Size of the record in each column 10⁸ 10⁹ 10¹⁰ 10¹¹" in read.words
    assert at_most(made.policy({"pay": 1e11})) in read.words
    assert "They are not sizes in the data" in read.words


def test_all_pure(tmp_path):
    made = ss.Session(records(1, 10), bits=Recorded(1)).sum({"emp": ss.GeneralizedGaussian(sigma=10, p=1)}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert cells(read, "emp", "PRDP loss")
    plain = ss.Session(records(1, 10), bits=Recorded(1)).sum({"emp": ss.Gaussian(sigma=10)}, keys=KEYS)
    read = Reader(plain.report(tmp_path / "p.html").read_text(encoding="utf-8"))
    assert "PRDP loss" not in read.words
    assert "pure guarantee" not in read.words


def test_a_function_of_which_only_the_name_is_known(tmp_path):
    """A transformation is to an attacker like Gaussian noise of the same loss, so its function is not needed."""
    made = ss.Session(records(1, 10), bits=Recorded(1)).sum(
        {"emp": ss.Transformation(np.sqrt, np.square, 1, 4)}, keys=KEYS
    )
    scope = Scope.of(made)
    assert scope.columns[0].mechanism is None
    found = explain_columns(scope.columns, RecordSize("r", everywhere=12.0))
    assert found.detected == pytest.approx(ss.attacker(ss.Gaussian(sigma=1), 2).power(0.05))
    unknown = replace(scope.columns[0], policy=ss.GeneralizedGaussian(sigma=1, p=1).policy)
    found = explain_columns([unknown], RecordSize("r", everywhere=1.0))
    assert replace(found, value=None) == explain([Loss(math.tanh(0.5))])
    assert found.bound


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"median": 12}, "exactly one size whose name contains the word 'largest'"),
        ({"largest": {"emp": 3}}, "'largest' must have a value for each of emp, pay, but pay is missing"),
        ({"largest": {"emp": 3, "pay": 2, "payy": 3}}, "has a value for 'payy', which is not released"),
        ({"largest": {"emp": 3, "pay": 2, "count": 3}}, "no number of records is released"),
    ],
)
def test_wrong_sizes_write_nothing(release, tmp_path, sizes, words):
    with pytest.raises(ss.ParameterError, match=words):
        release.report(tmp_path / "r.html", sizes=sizes)
    assert not list(tmp_path.iterdir())


def test_sizes_of_entities_have_their_number_of_records(tmp_path):
    session = ss.Session(records(1, 10).assign(firm=1), protect="firm", bits=Recorded(1))
    made = session.sum({"emp": ss.Gaussian(sigma=100)}, count=ss.GeneralizedGaussian(sigma=5, p=1))
    with pytest.raises(ss.ParameterError, match="count is missing"):
        made.report(tmp_path / "r.html", sizes={"largest": {"emp": 3}})
    read = Reader(
        made.report(tmp_path / "r.html", sizes={"largest": {"emp": 500, "count": 40}}).read_text(encoding="utf-8")
    )
    assert at_most(made.policy({"emp": 500, "count": 40})) in cells(read, "All columns together", "PRzCDP loss")
    assert at_most(ss.GeneralizedGaussian(sigma=5, p=1).pure_policy(40)) in cells(read, "count", "PRDP loss")


def test_notes_on_estimates(dollars, read, tmp_path):
    """An unbiased estimate of a sum that is not below 0 can lie outside its interval, and the report says so."""
    said = "can lie outside its interval, and below 0"
    assert said in dollars[2].words
    assert said in read.words  # a count
    assert "never below the standard deviation of an empty cell" in dollars[2].words
    assert "never below the standard deviation" not in read.words
    made = ss.Session(records(1, 10), bits=Recorded(1)).sum(
        {"emp": ss.Root(k=4, sigma=1, estimator="median")}, keys=KEYS
    )
    page = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8")).words
    assert said not in page
    column = made.facts.columns["emp"]
    biased = with_table(made, columns={"emp": column.with_(rounding_bias=0.25)})
    page = Reader(biased.report(tmp_path / "b.html").read_text(encoding="utf-8")).words
    assert "Besides, at most 0.25 by rounding to the unit." in page


def test_example_rows_have_the_digits_of_the_table(release, tmp_path):
    """What is on the unit's grid is printed as it is: no float is rounded up by its last bit, no se to three digits."""
    table = release.table.slice(0, 1)
    values = {"pay": 1234567.1, "pay_se": 1234.56, "pay_low": -0.1, "pay_high": 1e15 + 0.25}
    for name, value in values.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([value]))
    columns = {**release.facts.columns, "pay": release.facts.columns["pay"].with_(unit="0.01")}
    made = with_table(release, table, columns=columns)
    words = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8")).words
    assert "1,234,567.10 (1,234.56) −0.10 to 1,000,000,000,000,000.25" in words


def test_noise_on_a_count_is_described_as_such(tmp_path):
    session = ss.Session(records(1, 10), bits=Recorded(1))
    made = session.sum({"emp": ss.Gaussian(sigma=5)}, count=ss.Root(k=2, sigma=1))
    words = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8")).words
    assert "Gaussian noise is added to the sum." in words
    assert "The count is transformed by a root" in words
    assert "The sum is transformed by a root" not in words
