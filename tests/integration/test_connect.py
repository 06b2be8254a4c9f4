"""Spark Connect: a session proves its server, frames are opened as classic ones are, and a lost server is an error."""

import random
import socket
import threading
import time
from contextlib import suppress

import ibis
import pyarrow as pa
import pytest
from helpers import engines
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import EngineError
from slowscale.data import connections, selftest
from slowscale.data.sources import open_source

pytestmark = pytest.mark.xdist_group("connect")
KEYS = ss.Keys.cross({"k": ["a", "b"]})
RECORDS = pa.table({"k": ["a", "b", "a"], "x": [1, 10, 100], "f": [0.5, 0.25, 3.0]})


@pytest.fixture(scope="module")
def frame():
    return engines.load("connect", RECORDS)


@pytest.fixture
def session(frame):
    return ss.Session(frame, bits=Recorded(1))


def released(session):
    return session.sum({"x": ss.Gaussian(sigma=1e-9)}, keys=KEYS)


def test_the_facts_and_the_report_name_the_server_and_its_proof(session, tmp_path):
    release = released(session)
    assert release.table["x"].to_pylist() == [101, 10]
    facts = release.facts.selftest
    assert (facts.engine, facts.version, facts.format) == ("Spark Connect", engines.connect_session().version, 1)
    assert facts.checks > 3000
    assert released(session).facts.selftest == facts
    assert ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=1)}).facts.selftest is None
    report = release.report(tmp_path / "report.html").read_text()
    assert f"Spark Connect {facts.version}, which passed a self-test of {facts.checks} results" in report
    release.to_parquet(tmp_path / "release.parquet")
    assert ss.read_release(tmp_path / "release.parquet").facts.selftest == facts


def test_a_session_is_tested_once_and_again_if_it_is_another(frame, monkeypatch):
    tested = []
    monkeypatch.setattr(selftest, "self_test", lambda table: tested.append(table.count().to_pyarrow().as_py()) or 5)
    ss.Session(frame)
    assert tested == []
    other = engines.connect_to(engines.connect_address())
    data = other.read.parquet(frame.inputFiles()[0])
    released(ss.Session(data, bits=Recorded(1)))
    assert tested == [len(selftest.SELF_TEST_ROWS)]
    monkeypatch.setattr(type(other), "session_id", "another")
    assert released(ss.Session(data, bits=Recorded(1))).facts.selftest.checks == 5
    assert len(tested) == 2
    assert not [table for table in other.catalog.listTables() if "selftest" in table.name or "given" in table.name]


def test_a_server_that_does_not_conform_is_refused(tmp_path):
    """pysail evaluates a cast of NaN before the condition that guards it."""
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        engines.unavailable("pysail", error)
    server = SparkConnectServer()
    server.start(background=True)
    try:
        _, port = server.listening_address
        data = engines.connect_to(f"sc://127.0.0.1:{port}").createDataFrame(RECORDS)
        for _ in range(2):
            with refused(EngineError, "Spark Connect", code="nonconforming") as error:
                ss.Session(data, tmp_path / "a.ledger")
            assert "NaN: " in str(error.value)
        assert not (tmp_path / "a.ledger").exists()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("name", "value"), [("spark.sql.ansi.enabled", "false"), ("spark.sql.session.timeZone", "Asia/Tokyo")]
)
def test_settings_are_checked_at_each_query(session, frame, name, value):
    settings = frame.sparkSession.conf
    before = settings.get(name)
    settings.set(name, value)
    try:
        with refused(ss.ParameterError, "the Spark session", code="setting"):
            released(session)
    finally:
        settings.set(name, before)
    assert released(session).table["x"].to_pylist() == [101, 10]


def test_frames_are_opened_with_what_their_plans_show(frame):
    for data, view, filtered, stored in [
        (frame, False, False, {"k", "x", "f"}),
        (frame.filter("x > 1"), False, True, {"k", "x", "f"}),
        (frame.selectExpr("k", "x * 2 AS x", "f AS g", "f"), False, False, {"k", "f"}),
        (frame.selectExpr("x AS `a b`", "x"), False, False, {"x"}),
        (frame.join(frame.select("k").distinct(), "k"), True, False, {"k", "x", "f"}),
        (frame.groupBy("k").sum("x"), True, False, set()),
        (frame.filter("x > (SELECT 1)"), True, True, {"k", "x", "f"}),
        (frame.union(frame), True, False, set()),
    ]:
        source = open_source(data)
        assert (source.view, source.filtered) == (view, filtered), data.columns
        assert source.stored == frozenset(stored) or view, data.columns
    assert ss.Session(frame.filter("x > 1"), bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=1)}).policy.filtered


def test_a_wide_table_is_read_and_left_as_it_was(tmp_path):
    """The text of a plan has 25 columns, unless a setting is changed for a moment."""
    names = [f"c{i}" for i in range(40)]
    data = engines.load("connect", pa.table({name: [1, 2] for name in names}))
    settings = data.sparkSession.conf
    before = settings.get("spark.sql.debug.maxToStringFields")
    assert open_source(data).stored == frozenset(names)
    assert settings.get("spark.sql.debug.maxToStringFields") == before == "25"


@pytest.mark.parametrize("text", ["rand() AS r", "uuid() AS r", "monotonically_increasing_id() AS r"])
def test_random_frames_are_refused(frame, text):
    for data in (frame.selectExpr("k", "x", text), frame.sample(0.5, seed=random.randrange(9))):
        with refused(ss.ParameterError, "data", code="nondeterministic"):
            ss.Session(data)


def test_columns_of_other_types_are_left_out(frame):
    spark = frame.sparkSession
    data = spark.sql("SELECT 'TX' AS k, 1 AS x, INTERVAL '1' DAY AS span, array(1) AS many, NULL AS nothing")
    data.createOrReplaceTempView("odd")
    for one in (data, ibis.pyspark.connect(spark).table("odd")):
        source = open_source(one)
        assert source.table.columns == ("k", "x")
        assert set(source.unusable) == {"span", "many", "nothing"}


class Line:
    """A line to a server: one that can be held, so that nothing passes, and cut."""

    def __init__(self, port):
        self.server, self.flows, self.sockets = port, threading.Event(), []
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"sc://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                ends = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.server))
                self.sockets += ends
                for one, other in (ends, ends[::-1]):
                    threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    def forward(self, one, other):
        with suppress(OSError):
            while found := one.recv(2**16):
                self.flows.wait()
                other.sendall(found)

    def cut(self):
        self.flows.set()
        for one in (self.listener, *self.sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_lost_server_is_an_error_and_nothing_is_charged(frame, tmp_path, monkeypatch):
    """It hangs, comes back, and is gone: nobody waits for ten minutes, as the client of Spark Connect would."""
    monkeypatch.setattr(selftest, "self_test", lambda table: 5)
    monkeypatch.setattr(connections, "PATIENCE", 2.0)
    monkeypatch.setattr(connections, "HEARTBEAT", 0.2)
    line = Line(int(engines.connect_address().rpartition(":")[2]))
    data = engines.connect_to(line.address).read.parquet(frame.inputFiles()[0])
    ledger = ss.Ledger(tmp_path / "a.ledger")
    session = ss.Session(data, ledger, bits=Recorded(1))
    released(session)
    for lose in (line.flows.clear, line.cut):
        lose()
        start = time.monotonic()
        for use in (lambda: released(session), lambda: ss.Session(data)):
            with refused(EngineError, code="unreachable"):
                use()
        assert time.monotonic() - start < 20
        if lose == line.flows.clear:
            line.flows.set()
            released(session)
    assert [entry["kind"] for entry in ledger.history()].count("charge") == 2
