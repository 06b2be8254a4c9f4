"""What the plan of a Spark DataFrame shows, with plans made of Python objects: no Spark is started."""

from types import SimpleNamespace

import pytest

import slowscale as ss
from slowscale.data import sources


class Sequence:
    """A Scala sequence."""

    def __init__(self, items):
        self.items = list(items)

    def size(self):
        return len(self.items)

    def apply(self, place):
        return self.items[place]

    def nonEmpty(self):  # noqa: N802
        return bool(self.items)


class Node:
    """An operator of a plan; `output` has the columns as pairs of an id and a name."""

    def __init__(self, name, *children, output=(), deterministic=True, subqueries=()):
        self.getClass = lambda: SimpleNamespace(getSimpleName=lambda: name)
        self.children = lambda: Sequence(children)
        self.output = lambda: Sequence(column(number, name) for number, name in output)
        self.deterministic = lambda: deterministic
        self.subqueriesAll = lambda: Sequence(subqueries)


def column(number, name):
    return SimpleNamespace(exprId=lambda: SimpleNamespace(id=lambda: number), name=lambda: name)


def inspected(plan):
    frame = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)))
    frame.sparkSession = "a classic session"
    return sources._inspect_spark(frame, "the table")


STORED = ((1, "state"), (2, "emp"))


def relation():
    return Node("LogicalRelation", output=STORED)


def test_a_stored_table_is_no_view():
    found = inspected(relation())
    assert found.table == "the table"
    assert (found.view, found.filtered, found.stored) == (False, False, {"state", "emp"})


def test_a_plan_with_every_operator_that_keeps_rows_is_no_view():
    plan = relation()
    for name in sorted(sources.ROW_BY_ROW):
        plan = Node(name, plan, output=STORED)
    assert not inspected(plan).view
    assert inspected(Node("Aggregate", plan, output=STORED)).view


@pytest.mark.parametrize("name", ["Aggregate", "Join", "Window", "Distinct", "Generate", "Union", "Unknown"])
def test_other_operators_combine_rows_wherever_they_are(name):
    for plan in (Node(name, relation()), Node("Project", Node(name, relation())), Node(name, relation(), relation())):
        assert inspected(plan).view
    assert inspected(Node("Project", relation(), Node(name, relation()))).view


def test_a_subquery_combines_rows():
    assert inspected(Node("Filter", relation(), subqueries=["a scalar subquery"])).view


def test_a_filter_is_reported_wherever_it_is():
    assert inspected(Node("Project", Node("Filter", relation()))).filtered
    assert not inspected(Node("Project", relation())).filtered


def test_a_column_is_stored_if_its_id_and_its_name_are_those_of_a_table():
    """A derived column has a new id; a renamed one has a new id or a new name."""
    assert inspected(Node("Project", relation(), output=((2, "emp"), (3, "state"), (1, "k")))).stored == {"emp"}
    inner = Node("Project", relation(), output=((2, "emp"), (3, "twice")))
    assert inspected(Node("Project", inner, output=((2, "emp"), (3, "twice")))).stored == {"emp"}


@pytest.mark.parametrize(
    "plan",
    [
        Node("Project", relation(), deterministic=False),
        Node("Sample", relation()),
        Node("Project", Node("Sample", relation())),
        Node("Sample", relation(), deterministic=False),
    ],
)
def test_a_random_frame_is_refused(plan):
    with pytest.raises(ss.ParameterError, match="got a random or sampled Spark DataFrame; store it as a table first"):
        inspected(plan)


class RemoteFrame:
    """A DataFrame of Spark Connect, which gives the plan as text."""

    columns = ("state", "emp")

    def __init__(self, plan):
        self.plan, self.settings = plan, {"spark.sql.debug.maxToStringFields": "25"}
        self.sparkSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
        self.sparkSession.conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)

    def select(self, *names):
        assert names == ("`state`", "`emp`")
        return self

    def _explain_string(self, extended):
        assert extended
        assert self.settings != {"spark.sql.debug.maxToStringFields": "25"}
        if self.plan is None:
            raise OSError("lost")
        analyzed = f"== Analyzed Logical Plan ==\nstate: string, emp: bigint\n{self.plan}"
        optimized = "== Optimized Logical Plan ==\nX\n\n== Physical Plan ==\nY"
        return f"== Parsed Logical Plan ==\n'Project\n\n{analyzed}\n\n{optimized}"


PROJECT, RELATION = "Project [state#1, emp#2L]\n", "+- Relation spark_catalog.default.t[state#1,emp#2L,x#3] parquet"


@pytest.mark.parametrize(
    ("plan", "view", "filtered", "stored"),
    [
        (PROJECT + RELATION, False, False, {"state", "emp"}),
        (f"{PROJECT}+- SubqueryAlias t\n   {RELATION}", False, False, {"state", "emp"}),
        (f"{PROJECT}+- Filter (emp#2L > 3)\n   {RELATION}", False, True, {"state", "emp"}),
        (f"Project [state#1, emp#9L]\n+- Project [state#1, (2 * emp#2L) AS emp#9L]\n   {RELATION}", 0, 0, {"state"}),
        (f"Project [state#1, emp#3L]\n+- Project [state#1, x#3L AS emp#3L]\n   {RELATION}", False, False, {"state"}),
        (f"{PROJECT}+- Aggregate [state#1], [state#1, sum(x#3) AS emp#2L]\n   {RELATION}", True, False, None),
        (f"{PROJECT}+- Unknown\n   {RELATION}", True, False, None),
        (f"{PROJECT}+- Filter (emp#2L > list#8)\n   :  +- Project [1 AS 1#7]\n   {RELATION}", True, True, None),
        (f"{PROJECT}+- Filter (state#1 = a\n+ b)\n   {RELATION}", True, True, None),
    ],
)  # fmt: skip
def test_the_text_of_a_plan_shows_the_same(plan, view, filtered, stored):
    frame = RemoteFrame(plan)
    found = sources._inspect_spark(frame, "the table")
    assert (found.view, found.filtered) == (view, filtered)
    assert stored is None or found.stored == stored
    assert frame.settings == {"spark.sql.debug.maxToStringFields": "25"}


@pytest.mark.parametrize("text", ["rand(5)", "uuid(Some(3))", "monotonically_increasing_id()", "SHUFFLE(x#3)"])
def test_the_text_of_a_random_plan_is_refused(text):
    with pytest.raises(ss.ParameterError, match="got a random or sampled Spark DataFrame"):
        sources._inspect_spark(RemoteFrame(f"{PROJECT}+- Project [state#1, {text} AS emp#2L]\n   {RELATION}"), "")
    with pytest.raises(ss.ParameterError, match="got a random or sampled Spark DataFrame"):
        sources._inspect_spark(RemoteFrame(f"{PROJECT}+- Sample 0.0, 0.5, false, 3\n   {RELATION}"), "")


def test_a_plan_that_cannot_be_read_is_a_view_and_settings_are_restored():
    frame = RemoteFrame(PROJECT + RELATION)
    frame._explain_string = lambda extended: "another server"
    found = sources._inspect_spark(frame, "the table")
    assert (found.view, found.stored) == (True, frozenset())
    frame = RemoteFrame(None)
    with pytest.raises(OSError, match="lost"):
        sources._inspect_spark(frame, "the table")
    assert frame.settings == {"spark.sql.debug.maxToStringFields": "25"}


def test_other_objects_of_spark_are_refused():
    odd = type("Column", (), {"__module__": "pyspark.sql.column"})()
    with pytest.raises(ss.ParameterTypeError, match=r"data must be a path of .*, got Column"):
        ss.Session(odd)


class FakeFrame:
    """A Spark DataFrame that knows its columns only."""

    sparkSession = "the Spark session"  # noqa: N815

    def __init__(self, **types):
        self.columns = list(types)
        fields = [SimpleNamespace(name=name, dataType=dtype) for name, dtype in types.items()]
        self.schema = SimpleNamespace(fields=fields)
        self.views = []

    def select(self, *names):
        self.selected = names
        return self

    def createOrReplaceTempView(self, name):  # noqa: N802
        self.views.append(name)


def test_columns_of_spark_that_ibis_does_not_support_are_left_out():
    types = pytest.importorskip("pyspark.sql.types")

    class Odd(types.DataType):
        def simpleString(self):  # noqa: N802
            return "odd"

    assert sources._unusable_spark(FakeFrame(x=types.LongType(), y=types.StringType())) == {}
    unusable = {
        "odd": Odd(),
        "many": types.ArrayType(types.LongType()),
        "nothing": types.NullType(),
        "span": types.DayTimeIntervalType(),
    }
    found = sources._unusable_spark(FakeFrame(x=types.DecimalType(38, 2), **unusable))
    assert found == {name: dtype.simpleString() for name, dtype in unusable.items()}


def test_a_spark_frame_is_read_as_a_view_of_its_own_name(monkeypatch):
    frame, checked, tables = FakeFrame(odd=None, **{"a`b": None}), [], []
    connection = SimpleNamespace(table=lambda name: tables.append(name) or f"table {name}")
    monkeypatch.setattr(sources.ibis.pyspark, "connect", lambda session: connection if session else None)
    monkeypatch.setattr(sources, "engine_of_connection", lambda given: SimpleNamespace(check=checked.append))
    monkeypatch.setattr(sources, "_unusable_spark", lambda given: {"odd": "variant"})
    monkeypatch.setattr(sources, "_inspect_spark", lambda given, table: sources.Source(table, view=given is frame))
    found = [sources._open_spark(frame) for _ in range(2)]
    assert [source.table for source in found] == [f"table {name}" for name in tables]
    assert all(source.view and source.unusable == {"odd": "variant"} for source in found)
    assert checked == [connection, connection]
    assert frame.selected == ("`a``b`",)
    assert tables == frame.views
    assert len(set(tables)) == 2
