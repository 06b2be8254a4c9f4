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
import pytest
from bitsources import Recorded

import slowscale as ss
from slowscale.accounting import epsilon, odds_factor, posterior
from slowscale.figures import figure, grid, power_of_ten, published, share
from slowscale.report import write_confidential_report, write_report
from slowscale.report.published import rebuilt
from slowscale.report.words import growth, mathml

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
    mechanisms = {"emp": ss.Gaussian(HUGE), "pay": ss.ExponentialPolylog(0.05)}
    session = ss.Session(frame, bits=Recorded(1))
    return session.sum(mechanisms, keys=KEYS, count=ss.Gaussian(HUGE), **options), session


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
    assert headings == ["h1"] + ["h2"] * 6
    anchors = [attributes["id"] for attributes in read.found("h2")]
    assert anchors == ["published", "guarantee", "error", "attacker", "assumptions", "versions"]
    assert "Sums of emp and pay and the number of records, by county" in read.words
    assert "what can an attacker learn about a record of size …?" in read.words.lower()
    assert len(read.ids) == len(set(read.ids))
    targets = {link["href"].removeprefix("#") for link in read.found("a")}
    assert targets <= set(read.ids)


def test_facts_are_told(read, release):
    for said in (
        release.facts["protects"],
        release.facts["keys"]["assumption"],
        release.facts["id"],
        release.facts["created"],
        release.facts["columns"]["emp"]["described"],
        "emp > 0",
        "half = emp / 2",
        "pay_per_emp",
        f"slowscale {ss.__version__}",
    ):
        assert said in read.words, said


def test_what_an_attacker_learns(read, release):
    policy = release.policy.column("pay")
    for size in (1, 10, 100, 1_000, 10_000, 1_000_000):
        loss = policy(size)
        assert figure(loss) in read.words
        assert figure(epsilon(loss, 1e-6)) in read.words
        assert share(posterior(0.5, odds_factor(loss, 0.01))) in read.words


def test_example_rows(read, release):
    row = release.table.slice(0, 1).to_pylist()[0]
    assert f"{published(row['emp'], Fraction(1))} ({figure(row['emp_se'])})" in read.words
    assert f"{math.floor(row['emp_low']):,} to {math.ceil(row['emp_high']):,}".replace("-", "−") in read.words


def test_charts_have_text_alternatives(read, text):
    pictures = read.found("svg")
    assert len(pictures) == 2
    for picture in pictures:
        assert picture["role"] == "img"
        assert all(name in read.ids for name in picture["aria-labelledby"].split())
        assert "width" not in picture
    assert re.search(r"Standard error against True value of the sum\. emp: 1,000,000,000 throughout\.", read.words)
    assert len(read.found("details")) == len(read.found("summary")) == 2
    assert "#0072B2" in text  # Okabe and Ito's blue
    assert 'fill="currentColor"' in text


def test_formulas_are_rendered(read, text):
    assert len(read.found("math")) == 3
    told = [paragraph["aria-label"] for paragraph in read.found("p") if "aria-label" in paragraph]
    assert told[0] == "The policy: emp² / (2·1e+09²)"
    assert told[1].startswith("The policy: tanh(ε/2)·ε with ε = ")
    assert "<mi>emp</mi>" in text


def test_chart_agrees_with_the_table(release, text):
    """The error that is drawn is the one that is published."""
    (error,) = {round(value, 3) for value in release.table["pay_se"].to_pylist()}
    assert f"pay: {figure(error)} throughout." in text


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
    facts = {**other.facts, "id": release.facts["id"], "created": release.facts["created"]}
    swapped = replace(other, table=release.table, facts=facts)
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
    made = session.sum({NASTY: ss.Root(4, 1)}, keys=keys, partition="place")
    text = made.report(tmp_path / "report.html", spent=session.spent).read_text(encoding="utf-8")
    read = Reader(text)
    assert not read.found("script")
    assert not read.found("img")
    assert not re.search(r"<(script|img)", text)
    assert read.words.count(NASTY) > 5
    assert f"[{NASTY}]" in read.words  # in the formula


def test_not_private_banner(text, tmp_path):
    assert "NOT PRIVATE" in text
    made = ss.Session(records(1, 10)).sum({"emp": ss.Gaussian(HUGE)}, keys=KEYS)
    private = made.report(tmp_path / "private.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE" not in private
    assert "from secret bits" in private


def test_ledger(tmp_path):
    session = ss.Session(records(1, 10), ledger=tmp_path / "l.ledger", bits=Recorded(1))
    session.count(keys=KEYS, mechanism=ss.Gaussian(10))
    made = session.sum({"emp": ss.Root(4, 1)}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html", spent=session.spent).read_text(encoding="utf-8"))
    assert "by all releases (2 so far) together" in read.words
    assert made.facts["ledger"]["hash"] in read.words
    assert f"as entry {made.facts['ledger']['entry']}." in read.words
    assert figure(session.spent.column("emp")(1_000_000)) in read.words
    assert "being counted 0.005" in read.words
    without = Reader(made.report(tmp_path / "s.html").read_text(encoding="utf-8"))
    assert made.facts["ledger"]["hash"] in without.words
    assert "Table 4" not in without.words


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (ss.Transformation(np.log1p, np.expm1, sigma=0.5, a=0), "a function of the curator's"),
        (ss.ExponentialPolylog(d=2.0, p=1), "no finite standard error"),
        (ss.Gaussian(1e-170), "∞"),  # losses beyond what floats can hold
        (ss.UnitSplitting(10, 50), "in steps"),
        (ss.Log(0.3, estimator="median"), "None in the median"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_every_mechanism(mechanism, said, tmp_path):
    made = ss.Session(records(1, 10), bits=Recorded(1)).sum({"emp": mechanism}, keys=KEYS)
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert said in read.words
    assert len(read.found("svg")) >= 1 or "nothing that such axes could show" in read.words


def test_totals_entities_and_treatments(tmp_path):
    frame = records(1, 10).assign(firm=1)
    session = ss.Session(frame, protect="firm", bits=Recorded(1))
    options = {"nulls": "zero", "negatives": "zero", "nonnegative": True, "unit": {"pay": "0.01"}, "level": 0.9}
    made = session.sum({"emp": ss.Root(4, 1), "pay": ss.Gaussian(HUGE)}, count=ss.Gaussian(5), **options)
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    for said in ("in total", "one firm", "Upwards: results below 0", "90 %", "0.01", "Counted as 0.", "published as 0"):
        assert said in read.words, said
    counted = ss.Session(frame, bits=Recorded(1)).count(mechanism=ss.Gaussian(5))
    read = Reader(counted.report(tmp_path / "c.html").read_text(encoding="utf-8"))
    assert "Number of records, in total" in read.words
    assert "The limit is the same for all" in read.words


def test_many_columns(tmp_path):
    frame = pd.DataFrame({f"column {i}": [i, 2 * i] for i in range(12)})
    made = ss.Session(frame, bits=Recorded(1)).sum({name: ss.Gaussian(10 + i) for i, name in enumerate(frame)})
    read = Reader(made.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Sums of column 0, column 1, column 2 and 9 more, in total" in read.words
    assert "An example: the first 6 of 12 columns." in read.words


def test_files_are_not_lost(release, tmp_path):
    path = release.report(tmp_path / "report.html")
    before = path.read_bytes()
    path.write_bytes(b"other")
    with pytest.raises(ss.ParameterError, match=r"report\.html exists"):
        release.report(path)
    assert path.read_bytes() == b"other"
    assert write_report(release, path, overwrite=True).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_wrong_arguments(release, tmp_path):
    with pytest.raises(ss.ParameterError, match=r"must end in \.html"):
        release.report(tmp_path / "report.pdf")
    with pytest.raises(ss.ParameterTypeError, match="spent must be a RecordPolicy"):
        release.report(tmp_path / "r.html", spent=1.0)
    with pytest.raises(ss.ParameterTypeError, match="release must be a Release"):
        write_report("release", tmp_path / "r.html")
    with pytest.raises(ss.ParameterTypeError, match="release must be a Release"):
        write_confidential_report(None, None, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["altair", "vl_convert", "latex2mathml.converter"])
def test_missing_packages(release, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ss.EngineError, match=re.escape("pip install 'slowscale[plots]'")):
        release.report(tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_packages_are_imported_when_needed():
    code = "import slowscale.report, sys; print({'altair', 'vl_convert', 'latex2mathml'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_confidential_report(secret, tmp_path):
    made, session = released(secret)
    text = write_confidential_report(session, made, tmp_path / "c.html").read_text(encoding="utf-8")
    read = Reader(text)
    assert "CONFIDENTIAL: never publish this" in read.words
    losses = session.losses(made)
    assert f"{losses.records:,} records" in read.words
    for loss in (*losses.quantiles.values(), *losses.largest.values()):
        assert figure(loss) in read.words
    assert len(read.found("svg")) == 1
    with pytest.raises(ss.ParameterError, match="exists"):
        write_confidential_report(session, made, tmp_path / "c.html")
    with pytest.raises(ss.ParameterError, match="one that this session made"):
        write_confidential_report(ss.Session(secret), made, tmp_path / "d.html")


def test_rebuilt_mechanisms():
    for mechanism in (
        ss.Gaussian(2),
        ss.Root(4, 0.5, a=1),
        ss.Log(0.3),
        ss.ExponentialPolylog(0.3),
        ss.UnitSplitting(1, 2),
    ):
        assert rebuilt(mechanism.to_dict()) == mechanism
    for description in (None, {"type": "Session"}, {"type": "Transformation", "f": "numpy.log1p"}, {}):
        assert rebuilt(description) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (0.01234, "0.0123"), (4.567, "4.57"), (999.4, "999"), (999.7, "1,000"), (2e8 + 0.2, "200,000,000"),
        (1e13, "1.00\u00a0×\u00a010¹³"), (3e-7, "3.00\u00a0×\u00a010⁻⁷"),
        (-12.5, "−12.5"), (math.inf, "∞"), (math.nan, "unknown"),
    ],
)  # fmt: skip
def test_figures(value, written):
    assert figure(value) == written


def test_numbers_on_their_grid():
    assert [published(x, Fraction(1)) for x in (1234, -5, 1234.4, None)] == ["1,234", "−5", "1,234", "unknown"]
    assert [published(12.345, Fraction(1, 100), side) for side in (-1, 0, 1)] == ["12.34", "12.35", "12.35"]
    assert published(-12.5, Fraction(1), -1) == "−13"
    assert published(-math.inf, Fraction(1), -1) == "−∞"
    assert [grid(Fraction(unit)) for unit in ("1", "1000", "1/100", "1/3")] == ["1", "1,000", "0.01", "1/3"]
    assert [power_of_ten(e) for e in (-5, -2, 0, 6, 7)] == ["10⁻⁵", "0.01", "1", "1,000,000", "10⁷"]


def test_shares_never_claim_less_nor_certainty():
    assert [share(x) for x in (0.5, 0.50001, 0.838, 0.9989, 0.99941, 1.0)] == [
        "50.0 %", "50.1 %", "83.8 %", "99.9 %", "99.95 %", "> 99.99 %",
    ]  # fmt: skip


def test_formulas_with_large_and_small_numbers():
    drawn = mathml(ss.Gaussian(2.5e9).policy, "annual pay")
    assert "<mn>2.5</mn>" in drawn
    assert "<mn>9</mn>" in drawn
    assert "<mtext>[annual pay]</mtext>" in drawn
    assert "<mi>e</mi>" not in drawn


def test_growth_in_words():
    assert "a hundred times the loss" in growth(ss.Gaussian(1).policy)
    assert "only 3.2 times" in growth(ss.Root(4, 1).policy)
    assert "in proportion" in growth(ss.Root(2, 1).policy)
    assert "logarithm squared" in growth(ss.ExponentialPolylog(0.5).policy)
    assert "as the formula says" in growth(2 * ss.Gaussian(1).policy)
