"""Everything of the grid that knows names of the library: its objects, its commands, and the words that it prints.

`run` takes a combination and records, does all that the library offers for them, and returns an `Outcome`.
"""

import csv
import html
import io
import json
import os
import re
import stat
import sys
import tomllib
import warnings
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from itertools import count, product
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from helpers import engines
from helpers.bitsources import Recorded

import slowscale as ss
from grid.noises import noises
from grid.outcomes import Outcome, Statement, Table
from grid.records import COUNT, COUNTIES, DERIVED_IN_SQL, is_refused, layout, persons
from slowscale.cli import main
from slowscale.cli.app import app, ledger_app
from slowscale.mechanisms import REGISTRY
from slowscale.release.buckets import BUCKET
from slowscale.release.table import ReleasedTable

# What the column and table are called where the records are stored, and how many releases a capped ledger has room for.
RECORDS, ROOM = "records", 2
# Sizes in size tables. A plain size is the amount of one record; so is the size of an entity, if nothing else is said.
PLAIN_SIZES = (100.0, 1e6)
LEVEL = 0.99
CONFIDENTIAL_FILES = ("curator", "look", "private")
# Exit codes that are documented in docs/howto/command-line.md.
DONE, MISTAKEN, NOT_USABLE, REFUSED_BY_A_CAP = 0, 2, 3, 4


# How much a run does: the release and all that depends on the records; and all that is public; and all.
BRIEF, PUBLIC, WHOLE = 0, 1, 2


# Commands that are not about the records of a release, and methods that others of the grid call.
ELSEWHERE = {"advise", "calibrate", "compare", "demo", "init", "schema", "serve", "study"}
ELSEWHERE |= {
    "attempt",
    "charge",
    "check_dataset",
    "of",
    "ready",
    "set_cap",
    "set_largest",
    "set-largest",
    "with_facts",
}


def offered():
    """Return the names of all methods and commands that the library offers for a release."""
    kinds = (ss.Session, ss.Release, ss.ReleasedSums, ss.ReleasedQuantiles, ReleasedTable, ss.Ledger)
    methods = {
        name for kind in kinds for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }
    commands = {*_command_names(app.registered_commands), *_command_names(ledger_app.registered_commands)}
    return methods | commands


def _command_names(registered):
    return {one.name or one.callback.__name__.replace("_", "-") for one in registered}


def run(case, rows, folder, depth=WHOLE):
    """Do what the library offers for a combination, on some records, in an empty folder."""
    return _Run(case, rows, Path(folder), depth).outcome


def mechanism(noise):
    return REGISTRY[noise.kind](**dict(noise.parameters))


def charged(case, noise):
    made = mechanism(noise)
    return made.tight_policy if case.accounting == "tight" else made.policy


class _Run:
    def __init__(self, case, rows, folder, depth):
        self.case, self.rows, self.folder = case, rows, folder
        self.public, self.confidential = depth >= PUBLIC, depth >= WHOLE
        self.layout, self.noises, self.outcome = layout(case), noises(case), Outcome()
        self.persons = persons(case, rows)
        self.is_set, self.entities = case.tables == "set", case.protected == "entities"
        self.source = _store(case.source, rows, folder)
        with (
            chdir(folder),
            _warnings(self.outcome.warned),
            _quick(),
            patch.dict(os.environ, COLUMNS="200"),
            _same_noise_for_other_sums(),
        ):
            self._library()
            known = Recorded(7)
            with patch("slowscale.release.session.SECRET", known), patch("slowscale.sampling.bits.SECRET", known):
                self._commands()
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        private = {name for name in found if name.startswith((RECORDS, *CONFIDENTIAL_FILES))}
        self.outcome.files = sorted(found - private)

    # The library

    def _library(self):
        session = self._session()
        query = self.query()
        preview = session.preview(query)
        self._text("preview", str(preview), repr(session))
        self._state("preview.policy", preview.policy)
        self._sizes_of_preview(preview)
        self._text("sql", str(session.sums_sql(query, "duckdb")))
        assert preview.refusal is None, preview.refusal
        if self.confidential:
            self._inspect(session, query)
        try:
            first = session.release(query)
        except ss.DataError as error:
            self.outcome.refused = f"{type(error).__name__}: {error}"
            self._ledger(session, None)
            return
        self._published("first", first)
        self._state("release.policy", first.policy, first)
        self._state("spent", session.spent)
        if self.public:
            self._use(first)
            self._files(session, first)
        if self.confidential:
            self._look_back(session, first)
        second = self._again(session, query)
        self._published("second", second)
        self._state("spent after two", session.spent, releases=2)
        self._text("spent", str(session.spent), session.spent.describe(list(PLAIN_SIZES)))
        self._stated_in_words("spent.describe", session.spent.describe(list(PLAIN_SIZES)), releases=2)
        self._refuse_by_cap(session, query)
        self._ledger(session, first)
        self._quantiles(session)

    def _session(self):
        data, options = self.source
        path = {"none": None, "open": "census.ledger", "capped": None}[self.case.ledger]
        if self.case.ledger == "capped":
            caps = {name: self._times(ROOM) * charged(self.case, noise) for name, noise in self.noises.items()}
            path = ss.Ledger("census.ledger", caps, dataset="grid")
        return ss.Session(
            data,
            path,
            dataset="grid",
            accounting=self.case.accounting,
            protect="firm" if self.entities else None,
            bits=Recorded(3),
            **options,
        )

    def _times(self, releases):
        return releases * len(self.layout.drawn)

    def query(self):
        cells = self._query("cells")
        if not self.is_set:
            return cells
        tables = {"cells": cells, "kinds": self._query("kinds")}
        tables |= {"states": ss.Rollup("cells", by=["state"]), "nation": ss.Rollup("states")}
        return ss.Request(tables, hierarchies=[ss.Hierarchy.digits("county", {"state": 2})])

    def _query(self, table):
        return ss.Sums(
            self._columns(),
            keys=self._keys(table),
            count=self._count(),
            unit={name: self.noises[name].unit for name in self.layout.values} or 1,
            means="box" if self.case.statistic == "mean" else None,
            **self._options(),
        )

    def _keys(self, table):
        known = {"county": list(COUNTIES), self.layout.kind: list(self.layout.labels)}
        return ss.Keys.cross({name: known[name] for name in self.layout.drawn[table]})

    def _columns(self):
        return {name: mechanism(self.noises[name]) for name in self.layout.values}

    def _count(self):
        return mechanism(self.noises[COUNT]) if COUNT in self.noises else None

    @property
    def _derive(self):
        names = [*self.layout.values, self.layout.kind]
        return {name: DERIVED_IN_SQL[name] for name in names if name in DERIVED_IN_SQL}

    def _options(self):
        return {"derive": self._derive or None, "nulls": self.case.odd, "negatives": self.case.odd}

    def _again(self, session, query):
        """Release the same once more: several tables into a folder, one table by the method for its statistic."""
        if self.is_set:
            return session.release(query, to="again", csv=True)
        keys, unit = self._keys("cells"), {name: self.noises[name].unit for name in self.layout.values}
        if self.case.statistic == "count":
            return session.count(keys=keys, mechanism=self._count(), derive=self._derive or None)
        if self.case.statistic == "mean":
            return session.mean(self._columns(), keys=keys, count=self._count(), unit=unit, **self._options())
        return session.sum(self._columns(), keys=keys, unit=unit, **self._options())

    def _tables(self, found):
        """Return the tables of a release by their names in the grid; a table alone has another name in the library."""
        return {name if self.is_set else "cells": found[name] for name in found}

    def _published(self, release, found):
        for name, one in self._tables(found).items():
            table = one.table
            types = {field.name: str(field.type) for field in table.schema}
            self.outcome.tables[release, name] = Table(table.to_pydict(), types)
            self._text(f"{release}: facts of {name}", json.dumps(one.facts.to_dict(), ensure_ascii=False))
            self._text(f"{release}: release of {name}", repr(one))
            self._show(f"{release}: notebook of {name}", one._repr_html_())
            assert not one.whole.private
            assert "NOT PRIVATE" in repr(one)
        facts = {key: value for key, value in found.facts.to_dict().items() if key != "ledger"}
        self._text(f"{release}: facts", json.dumps(facts, ensure_ascii=False))
        assert not found.facts.private
        assert "NOT PRIVATE" in repr(found)
        self._text(f"{release}: release", repr(found))
        self._show(f"{release}: notebook", found._repr_html_())

    def _use(self, found):
        """Do what readers do with published numbers."""
        one = found["cells"] if self.is_set else found
        rolled = [one.rollup("county"), one.rollup(), one.rollup(self.layout.kind)]
        rolled.append(one.rollup("state", hierarchy=ss.Hierarchy.digits("county", {"state": 2})))
        for name in self.noises:
            low, high = one.interval(name, LEVEL)
            assert all(low <= high)
            table = found["cells" if self.is_set else next(iter(found))]
            assert table.head(2).to_pylist() == one.table.slice(0, 2).to_pylist()
            assert table.read_column(name) == one.table[name]
            shown = [*low, *high, *one.unbiased_variance(name)]
            self._show(f"interval of {name}", json.dumps(list(map(float, shown))))
            self._show(f"plot of {name}", repr(one.plot(name, top=5)))
            for roll in rolled:
                assert abs(sum(roll.table[name].to_pylist()) - sum(one.table[name].to_pylist())) < 1e-3, "rolled up"
                roll.interval(name, LEVEL)
        if len(self.noises) > 1:
            first, second = self.noises
            self._show("ratio", repr(one.ratio(first, second).table.schema))
        earlier = {self.layout.kind: one.table[self.layout.kind][0].as_py()}
        derived = [one.share("county"), one.growth(earlier), one.difference(earlier)]
        for made, name in product(derived, self.noises):
            low, high = (made.table[f"{name}_{made.kind}_{end}"].to_pylist() for end in ("low", "high"))
            assert all(one is None or other is None or one <= other for one, other in zip(low, high, strict=True))
        self._show("derived", "\n".join(repr(made.table.schema) for made in derived))
        self._show("rolled up", "\n".join(repr(roll.table.schema) for roll in rolled))
        frames = one.to_pandas(), one.to_polars(), one.to_arrow()
        assert [list(frame.columns if i < 2 else frame.column_names) for i, frame in enumerate(frames)] == [
            one.table.column_names
        ] * 3

    def _files(self, session, found):
        publication = ss.Publication("Pay", source="A register", keys={"county": "County"})
        found.to_parquet("out" if self.is_set else "out.parquet")
        found.to_csv("out-csv" if self.is_set else "out.csv")
        read = (ss.read_release("out"), ss.read_release("out-csv")) if self.is_set else ()
        read = read or (ss.read_release("out.parquet"), ss.read_release("out.csv"))
        for one in read:
            assert one.facts.to_dict() == found.facts.to_dict()
            for name, made in found.tables.items():
                assert one[name].table.to_pydict() == made.table.to_pydict(), "read back"
                assert one[name].policy == made.policy
            self._state("read.policy", one.policy, one)
        for name, profile in (("reader.xlsx", "basic"), ("reader.csv", "basic"), ("reader.parquet", "research")):
            found.publish(name, publication, profile=profile)
        found.report("report.html", spent=session.spent, publication=publication)
        text = Path("report.html").read_text(encoding="utf-8")
        self._show("report.html", _words(text))
        self._stated_in_report("report.html", text)
        file = "out/cells.parquet" if self.is_set else "out.parquet"
        secret, public = ss.keygen("agency")
        assert all(path.exists() for path in ss.sign([file], secret))
        assert Path(file).name in ss.verify(file, public).files
        for path in ("out.csv", "out.csv.json") if not self.is_set else ("out-csv/cells.csv", "out-csv/cells.csv.json"):
            self._show(path, Path(path).read_text(encoding="utf-8"))

    def _named_sizes(self):
        small = dict.fromkeys(self.layout.values, 120.0) | ({COUNT: 2} if self._counts_entities else {})
        large = dict.fromkeys(self.layout.values, 5e6) | ({COUNT: 30} if self._counts_entities else {})
        return {"a small one": small, "the largest": large} if small else None

    @property
    def _counts_entities(self):
        return self.entities and COUNT in self.noises

    def _refuse_by_cap(self, session, query):
        if self.case.ledger != "capped":
            return
        assert session.preview(query).refusal is not None, "a cap with room for two releases has room for a third"
        self._refusal("third release", lambda: session.release(query), ss.CapError)

    def _ledger(self, session, release):
        ledger = session.ledger
        if ledger is None:
            return
        assert ledger.verify() == []
        if release is not None:
            assert ledger.verify(release.facts.ledger) == []
        history = ledger.history()
        self.outcome.charges = sum(entry["kind"] == "charge" for entry in history)
        self.outcome.attempts = sum(entry["kind"] == "attempt" for entry in history)
        self._text("ledger.describe", ledger.describe())
        self._stated_in_words("ledger.describe", ledger.describe(), self.outcome.charges)
        self._text("ledger.history", json.dumps(history, ensure_ascii=False, default=str))
        ledger.close()

    def _quantiles(self, session):
        """Ask for quantiles at the end: another charge, which a cap on other columns does not know."""
        options = {"loss": 0.5, "grid": [1, 100, 10_000], "nulls": "zero"}
        if self.case.ledger == "capped" and COUNT in self.noises:
            self._refusal("quantiles", lambda: session.quantiles("pay", [0.5], **options), ss.CapError)
        else:
            found = session.quantiles("pay", [0.5], **options)
            self._text("quantiles", json.dumps([list(found), found.rank_error]))
            if self.case.ledger != "capped":
                self._beside_quantiles(session, ss.Quantiles("pay", [0.5], **options))

    def _beside_quantiles(self, session, quantiles):
        """Release sums and quantiles together: what a record loses by both is added."""
        found = session.release({"cells": self._query("cells"), "sizes": quantiles})
        table = found["cells"].table
        types = {field.name: str(field.type) for field in table.schema}
        self.outcome.tables["beside quantiles", "cells"] = Table(table.to_pydict(), types)
        self._text("beside quantiles", repr(found["cells"]), json.dumps(found.facts.to_dict()["tables"]))
        for size in PLAIN_SIZES:
            one = {COUNT: 1} if self._counts_entities else {}
            loss = found.policy(dict.fromkeys(self.layout.values, size) | one) - quantiles.loss
            self._note("beside quantiles", size, loss, tables=["cells"])
        if self.public:
            found.to_csv("beside")
            read = ss.read_release("beside")
            assert read.facts.to_dict() == found.facts.to_dict()
            assert dict(read["sizes"]) == dict(found["sizes"])
            found.publish("beside.xlsx", ss.Publication("Pay", source="A register"), profile="basic")
            found.report("beside.html")
        if self.confidential:
            assert list(session.errors(read)) == ["cells"]
            assert min(session.losses(read).quantiles.values()) >= quantiles.loss * (1 - 1e-9)

    # What the curator alone may see

    def _inspect(self, session, query):
        found = session.inspect(query)
        found = found if self.is_set else {"cells": found}
        self.outcome.confidential["inspected"] = {
            name: {"records": one.records, "outside": one.outside, "losses": None} for name, one in found.items()
        }
        for one in found.values():
            assert repr(one).startswith("CONFIDENTIAL")

    def _look_back(self, session, found):
        open_cells = session.dominance(found)
        assert repr(open_cells)
        with suppress(ss.ParameterError):  # no band can be stated
            assert found.band_policy().band == session.spent.band_policy().band == 1.1
        losses = session.losses(found)
        self.outcome.confidential["losses"] = {
            "persons": losses.records,
            "quantiles": losses.quantiles,
            "largest": losses.largest[1],
        }
        errors = session.errors(found)
        self.outcome.confidential["errors"] = {
            name if self.is_set else "cells": [
                (one.column, one.low, one.high, one.cells, one.median_error) for one in classes
            ]
            for name, classes in errors.items()
        }
        with patch.object(session, "losses", lambda release: losses):  # they are not computed twice
            path = found.confidential_report("curator.html", session)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        read = ss.read_release("out" if self.is_set else "out.parquet")
        data, options = self.source
        other = ss.Session(data, dataset="grid", protect="firm" if self.entities else None, **options)
        for one in (session, other):  # the other one reads the records again
            assert one.errors(read) == errors, "a release that was read back"

    # Losses that are stated

    def _state(self, place, policy, release=None, releases=1):
        """Note what the library states for the persons of the data."""
        for person in self.persons.values():
            cells = {table: [_plain(cell) for cell in some] for table, some in person.items()}
            single = [some[0] for some in cells.values() if len(some) == 1]
            alike = len(single) == len(cells) and all(one == single[0] for one in single)
            if self.entities and release is not None:
                loss = release.entity(cells if self.is_set else {"table": cells["cells"]})
                assert self.is_set or loss == release.policy.entity(cells["cells"])
            elif not alike:
                continue  # the policy is called on the totals of one cell, which must be the same in all tables
            elif self.entities:
                loss = policy({name: single[0][name] for name in policy.columns})
            else:
                loss = policy({name: single[0][name] for name in self.layout.values})
            self.outcome.statements.append(Statement(place, person, float(loss), releases=releases))

    def _size(self, amount, tables=None, records=1):
        """Return the person that a plain size stands for: one record with this amount in every column."""
        cell = dict.fromkeys(self.layout.values, amount) | {COUNT: records}
        return {table: [cell] for table in tables or self.layout.drawn}

    def _note(self, place, amount, loss, columns=None, releases=1, digits=None, tables=None):
        person = amount if isinstance(amount, dict) else self._size(amount, tables)
        self.outcome.statements.append(Statement(place, person, loss, columns, releases, digits))

    def _sizes_of_preview(self, preview):
        for table, losses in preview.losses(list(PLAIN_SIZES)).items():
            if not table or table in self.layout.drawn:
                for amount, loss in zip(PLAIN_SIZES, losses.values(), strict=True):
                    self._note(f"preview.losses of {table!r}", amount, loss, tables=[table] if table else None)

    def _stated_in_words(self, place, text, releases=1):
        """Note the lines "x: 0.2 at 100, 3 at 1,000,000" of a text; sizes of the count are "10 records"."""
        for line in text.splitlines():
            name, _, rest = line.strip().partition(": ")
            columns = {**{name: (name,) for name in self.noises}, "all columns together": None}
            found = re.findall(rf"({_NUMBER}) at ({_NUMBER})( records?)?", rest)
            for loss, size, records in found if name in columns else ():
                person = self._size(0.0, records=_number(size)) if records else _number(size)
                self._note(f"{place}, {name}", person, _number(loss), columns[name], releases, 3)

    def _stated_in_report(self, place, text):
        """Note the losses in the data of the chart of the policies: a column of sizes, then one for each column."""
        for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
            lines = [
                [_words(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", line, re.DOTALL)]
                for line in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
            ]
            heads = lines[0][1:] if lines else []
            if "PRzCDP loss" not in _words(table) or not set(heads) & set(self.noises):
                continue
            for size, *losses in lines[1:]:
                for head, loss in zip(heads, losses, strict=True):
                    if head in self.noises and re.fullmatch(_NUMBER, loss) and re.fullmatch(_NUMBER, size):
                        counts = "records" in lines[0][0].lower()
                        person = self._size(0.0, records=_number(size)) if counts else _number(size)
                        self._note(f"{place}, chart of {head}", person, _number(loss), (head,), 1, 3)

    # The commands

    def _commands(self):
        Path("plan.toml").write_text(self.plan(), encoding="utf-8")
        refused = is_refused(self.case, self.rows)
        if self.public:
            self._check()
            self._command("sql", "plan.toml", "--dialect", "duckdb")
        if self.confidential:
            self._command("inspect", "plan.toml", "--no-duplicates", "--report", "look.html", keep=None)
        options = ["--confidential-report", "private.html"] if self.confidential else []
        code = NOT_USABLE if refused else DONE
        self._command("release", "plan.toml", "--yes", code=code, keep="show", private=options)
        if refused:
            return
        folder = Path("tables")
        self._show("plan.html", _words(Path("plan.html").read_text(encoding="utf-8")))
        file = folder / "cells.parquet"
        for name, path in [("cells", file)] + ([("kinds", folder / "kinds.parquet")] if self.is_set else []):
            table = pq.read_table(path)
            types = {field.name: str(field.type) for field in table.schema}
            self.outcome.tables["command", name] = Table(table.to_pydict(), types)
        if not self.public:
            return
        self._explain(file)
        if self.case.ledger != "none":
            self._stated_in_words("ledger show", self._command("ledger", "show", "plan.ledger"))
            self._command("ledger", "show", "plan.ledger", "--json")
            self._command("ledger", "history", "plan.ledger")
            self._command("ledger", "verify", "plan.ledger", "--against", file)
        if self.case.ledger == "capped":
            self._command("release", "plan.toml", "--yes", "--overwrite", code=REFUSED_BY_A_CAP)
        self._command("keygen", "office", keep=None)  # a new key, which is printed
        self._command("sign", file, "--key", "office.key", "--overwrite", keep=None)
        self._command("verify", file, "--key", "office.pub", keep=None)

        if self.confidential:
            self._curate(file)

    def _curate(self, file):
        """Do what is left for the curator."""
        if self.case.ledger == "capped":
            name, noise = next(iter(self.noises.items()))
            parameters = [part for given in noise.parameters for part in ("--param", "{}={}".format(*given))]
            options = [*parameters, "--accounting", self.case.accounting]
            reason = ["--reason", "one more", "--times", self._times(2), "--yes"]
            self._command("ledger", "set-cap", "plan.ledger", name, "--mechanism", noise.kind, *options, *reason)
        capped = self.case.ledger == "capped" and COUNT in self.noises
        code = REFUSED_BY_A_CAP if capped else DONE
        options = [
            "--column",
            "pay",
            "--loss",
            0.5,
            "--at",
            0.5,
            "--grid",
            "1,100,10000",
            "--nulls",
            self.case.odd,
            "--yes",
        ]
        self._command("quantiles", "plan.toml", *options, code=code, keep=None)

    def _check(self):
        checked = json.loads(self._command("check", "plan.toml", "--json", "--sizes", "100,1e6"))
        for size, row in zip(PLAIN_SIZES, checked["sizes"], strict=True):
            self._note("check --sizes", size, row["loss"])
        if self.confidential:
            self._command("check", "plan.toml")

    def _explain(self, file):
        """Explain the loss of a person that is in one cell of each table."""
        person = self._named_person()
        names = [*self.layout.values, *([COUNT] if self._counts_entities else [])]
        cell = person["cells"][0]
        values = [part for name in names for part in ("--value", f"{name}={cell[name]}")]
        found = json.loads(self._command("explain", file, *values, "--json"))
        self._note("explain a release", person, found["loss"])
        self._command("explain", file, *values)
        self._note(
            "explain a plan", person, json.loads(self._command("explain", "plan.toml", *values, "--json"))["loss"]
        )

    def _named_person(self):
        cell = dict.fromkeys(self.layout.values, 12_345.0) | {COUNT: 3 if self._counts_entities else 1}
        return {table: [cell] for table in self.layout.drawn}

    def _command(self, *arguments, code=DONE, keep="text", private=()):
        """Run a command in this process, check its exit code, and return what it printed."""
        given = [*map(str, arguments), *private]
        name = " ".join(map(str, arguments))
        out, err = io.StringIO(), io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            with patch.object(sys, "argv", ["slowscale", *given]):
                try:
                    main()
                except SystemExit as done:
                    found = done.code or 0
        assert found == code, f"slowscale {name}: exit code {found}, not {code}: {err.getvalue()}"
        if keep is not None:
            self.outcome.codes[name] = found
            printed = [line for line in out.getvalue().splitlines() if line not in map("wrote {}".format, private)]
            {"text": self._text, "show": self._show}[keep](f"slowscale {name}", *printed, err.getvalue())
        return out.getvalue()

    def plan(self):
        """Return the same request as a plan."""
        case, lines = self.case, ["[data]"]
        data, options = self.source
        place = "database" if case.source == "postgres" else "path"
        lines += [f"{place} = {json.dumps(str(data))}", 'name = "grid"', 'protect = "firm"' * self.entities]
        if options:
            types = ", ".join(f'{name} = "{dtype}"' for name, dtype in options["types"].items())
            lines.append(f"types = {{ {types} }}")
        if self._derive:
            lines.append("derive = { " + ", ".join(f'{name} = "{sql}"' for name, sql in self._derive.items()) + " }")
        if case.ledger != "none":
            lines += ["[ledger]", 'path = "plan.ledger"']
        if case.ledger == "capped":
            for name, noise in self.noises.items():
                lines += [f"[ledger.caps.{name}]", *_toml(noise), f'accounting = "{case.accounting}"']
                lines += [f"times = {self._times(1)}"]
        lines += ["[release]", f'accounting = "{case.accounting}"', *self._plan_tables()]
        if self._named_sizes():
            sizes = [{"name": name, **values} for name, values in self._named_sizes().items()]
            lines += ["[report]", f"sizes = [{', '.join(map(_inline, sizes))}]"]
        text = "\n".join(lines) + "\n"
        tomllib.loads(text)
        return text

    def _plan_tables(self):
        def keys(table):
            known = {"county": list(COUNTIES), self.layout.kind: list(self.layout.labels)}
            return "cross = " + _inline({name: known[name] for name in self.layout.drawn[table]})

        lines = []
        for table in self.layout.drawn if self.is_set else ["cells"]:
            lines += [f"[tables.{table}]", f'nulls = "{self.case.odd}"', f'negatives = "{self.case.odd}"']
            lines += [f"[tables.{table}.keys]", keys(table)]
            for name in self.layout.values:
                noise = self.noises[name]
                lines += [f"[tables.{table}.sums.{name}]", *_toml(noise), f'unit = "{noise.unit}"']
            if COUNT in self.noises:
                lines += [f"[tables.{table}.count]", *_toml(self.noises[COUNT])]
        if self.is_set:
            lines += ["[tables.states]", 'rollup = "cells"', 'by = ["state"]', "[tables.nation]", 'rollup = "states"']
            lines += ["[[hierarchies]]", 'column = "county"', "digits = { state = 2 }"]
        return [*lines, "[output]", 'folder = "tables"', 'report = "plan.html"']

    # What is kept

    def _text(self, step, *texts):
        self.outcome.texts[step] = self._masked("\n".join(texts))

    def _show(self, step, *texts):
        self.outcome.showing[step] = self._masked("\n".join(texts))

    def _masked(self, text):
        """Return a text without what differs between any two runs: the folder, identifiers, hashes, keys and times."""
        text = text.replace(str(self.folder), "FOLDER")
        text = re.sub(r"\b(?=[0-9]*[a-f])[0-9a-f]{16,64}\b", "HEX", text)  # a long decimal is a number
        text = re.sub(r"\b(?:[0-9a-f]{4}[ :-]){3,}[0-9a-f]{4}\b", "HEX", text)
        return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00| UTC|Z)?", "TIME", text)

    def _refusal(self, step, attempt, kind):
        """Note a refusal that is documented; it must be of this kind."""
        try:
            attempt()
        except kind as error:
            self.outcome.refusals[step] = self._masked(f"{type(error).__name__}: {error}")
        else:
            raise AssertionError(f"{step}: {kind.__name__} is documented, and nothing was raised")


_NUMBER = r"10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|[0-9][0-9,.]*(?:\s×\s10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?"


def _number(text):
    """Return a number as people read it: 1,250 or 5.56 × 10¹⁸ or 10⁸."""
    factor, _, power = text.rpartition("10") if re.search("[⁰¹²³⁴⁵⁶⁷⁸⁹]", text) else (text, "", "")
    exponent = int(power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")) or 0)
    return float(factor.replace(",", "").replace("×", "").strip() or 1) * 10.0**exponent


def _words(text):
    """Return the text of HTML."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


def _plain(cell):
    return {name: int(total) if name == COUNT else float(total) for name, total in cell.items()}


def _toml(noise):
    return [f'mechanism = "{noise.kind}"', *(f"{name} = {value}" for name, value in noise.parameters)]


def _inline(table):
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items()) + " }"


_REMEMBERED = {name: cache(getattr(ss.Attacker, name)) for name in ("delta", "epsilon", "power")}


@contextmanager
def _quick():
    """Save time on what depends neither on the records nor on the noise, and know identifiers when they are seen.

    What an attacker can do follows from the mechanisms, and is computed once. No picture is drawn in reports: the data
    of each chart is beside it as a table.
    """
    charts = "slowscale.publish.charts"
    remembered = {name: _method(found) for name, found in _REMEMBERED.items()}
    with (
        patch(f"{charts}.spec", lambda *given: {}),
        patch(f"{charts}.render", lambda given: "<svg></svg>"),
        patch.multiple(ss.Attacker, **remembered),
        patch("secrets.token_hex", lambda size: f"ab{next(_identifiers):0{2 * size - 2}x}"),
    ):
        yield


def _same_noise_for_other_sums():
    """By design the noise of a bucket changes with its exact sums; so that neighbours have the same, it does not."""
    digests = "slowscale.release.buckets._digests_of_sums"
    return patch(digests, lambda sums: [b""] * -(-len(sums.counts) // BUCKET))


_identifiers = count()  # each with a letter, so that they can be told from numbers


def _method(function):
    return lambda self, *given: function(self, *given)


@contextmanager
def _warnings(kept):
    """Keep all warnings, in order."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    kept += [f"{one.category.__name__}: {one.message}" for one in found if issubclass(one.category, UserWarning)]


# Where the records are stored


def _store(kind, rows, folder):
    """Store records; return the data of a session and its options."""
    columns = {name: [getattr(one, name) for one in rows] for name in ("firm", "county", "kind", "pay", "wage")}
    types = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.decimal128(12, 2))
    table = pa.table({name: pa.array(some, dtype) for (name, some), dtype in zip(columns.items(), types, strict=True)})
    if kind == "parquet":
        pq.write_table(table, folder / f"{RECORDS}.parquet")
        return f"{RECORDS}.parquet", {}
    if kind == "csv":
        with open(folder / f"{RECORDS}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
        return f"{RECORDS}.csv", {"types": {"pay": "int64", "wage": "decimal(12, 2)"}}
    with _postgres().cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {RECORDS}")
        cursor.execute(f"CREATE TABLE {RECORDS} (firm text, county text, kind text, pay bigint, wage numeric(12, 2))")
        cursor.executemany(
            f"INSERT INTO {RECORDS} VALUES (%s, %s, %s, %s, %s)", list(zip(*columns.values(), strict=True))
        )
    return f"{engines.postgres_uri()}#public.{RECORDS}", {}


@cache
def _postgres():
    import psycopg

    try:
        return psycopg.connect(engines.postgres_uri(), autocommit=True)
    except (ImportError, OSError, RuntimeError) as error:
        return engines.unavailable("POSTGRESQL", error)
