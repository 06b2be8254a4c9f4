"""Sources: data in any supported form becomes one Ibis table, on the engine where the data already is.

Files and frames are read by a private DuckDB in this process; a database table or a Spark DataFrame stays where it is.
Types come from the schema of the source or are declared; they are never inferred from the records. An outline has the
columns of the data without its records, for checking a request before any record is read.
"""

import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import duckdb
import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError, Shown, install_hint, similar
from slowscale.data import foreign, textfiles
from slowscale.data.connections import (
    ask_spark,
    engine_errors,
    first_line,
    fresh_name,
    is_connect,
    literal,
    locked,
    private_duckdb,
    quoted,
)
from slowscale.data.conversion import (
    Source,
    Stored,
    arrow_types,
    check_names,
    check_types,
    converted,
    is_supported,
    no_column,
    parquet_types,
    type_name,
)
from slowscale.data.engines import engine_of, engine_of_connection
from slowscale.data.foreign import Frame, as_arrow
from slowscale.data.textfiles import CsvFormat

ALLOWED = (
    "a path of Parquet, CSV, Excel, Stata, SPSS or SAS files, a pandas, polars or pyarrow table, a dict of columns, "
    'a DuckDB relation, an Ibis table, a Spark DataFrame, or a database address such as "postgresql://host/database#table"'
)
PARQUET = (".parquet", ".pq")


def open_table(data: Any, types: Mapping[str, str] | None = None, csv: Any = None, argument: str = "data") -> ir.Table:
    """Return data of any supported kind as an Ibis table; see `open_source`."""
    return open_source(data, types, csv, argument).table


def open_source(data: Any, types: Mapping[str, str] | None = None, csv: Any = None, argument: str = "data") -> Source:
    """Return data of any supported kind as a source.

    Parameters
    ----------
    data
        The records.
    types
        For files and frames: the types of columns, such as {"county": "string"}. Columns of a CSV or Excel file
        without a type are text.
    csv
        For CSV files: their settings, such as {"delimiter": ";", "encoding": "latin-1"}.
    argument
        The name of the data in errors.
    """
    declared, form = check_types(types), CsvFormat.of(csv)
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        paths = [os.fsdecode(item) for item in data]
        if any(re.match(r"\w+:/|.*\bpassw", path) and not os.path.exists(path) for path in paths):
            _refuse_types_and_csv(declared, csv)
            if len(paths) > 1:
                raise ParameterError(
                    argument, allowed="one database address, or paths of files", given=Shown("several addresses")
                )
            return _open_address(paths[0], argument)
        return _open_files(paths, declared, form, csv is not None, argument)
    if csv is not None:
        raise ParameterError("csv", allowed="given for CSV files only", remedy="leave it out", code="conflict")
    if isinstance(data, ir.Table):
        _refuse_types_and_csv(declared, csv)
        engine, backend = engine_of(data), data.get_backend()
        with locked(backend), engine_errors("the settings of the engine", "could not be read"):
            engine.check(backend)
            if engine.name == "pyspark":
                return ask_spark(backend._session, lambda: _spark_query(backend, data))
            views = [engine.is_view(backend, table) for table in data.op().find(ops.DatabaseTable)]
            engine.check_files(backend, data)
        return replace(_usable(data, argument), view=any(views))
    if type(data).__module__.startswith("pyspark.sql"):
        _refuse_types_and_csv(declared, csv)
        return _open_spark(data)
    read = as_arrow(data, argument)
    if read is None:
        raise ParameterTypeError(argument, allowed=ALLOWED, given=type(data))
    return _register(read, declared, argument)


def _refuse_types_and_csv(types: Mapping[str, Any], csv: Any) -> None:
    if types or csv is not None:
        raise ParameterError(
            "types" if types else "csv",
            "must be given for files and frames only, because a database table declares its types itself",
            code="conflict",
            remedy="cast its columns in derive",
        )


def _usable(table: ir.Table, argument: str) -> Source:
    """Return a table of a database without the columns whose type is not supported."""
    unusable = {name: type_name(dtype) for name, dtype in table.schema().items() if not is_supported(dtype)}
    if len(unusable) == len(table.columns):
        raise no_column(argument)
    return Source(table.drop(*unusable) if unusable else table, unusable=unusable)


# Frames


def _register(read: Frame, types: Mapping[str, dt.DataType], argument: str, text: bool = False) -> Source:
    connection, stored = private_duckdb(size=read.table.nbytes), arrow_types(read.table.schema)
    frame = read.table.select([name for name, column in stored.items() if column.dtype is not None])
    if not frame.num_columns:
        raise no_column(argument)
    name = fresh_name("frame")
    with engine_errors(argument):
        connection.con.register(name, frame)
        made = converted(connection, name, types, argument, stored=stored)
    left_out = {name: column.text for name, column in stored.items() if column.dtype is None}
    unusable = {**read.unusable, **left_out, **made.unusable}
    return replace(made, unusable=unusable, not_text=read.not_text, text_numbers=text)


# Files


def _open_files(
    paths: Sequence[str], types: Mapping[str, dt.DataType], form: CsvFormat, has_form: bool, argument: str
) -> Source:
    files, kind = files_of_one_kind(paths, has_form, argument)
    if kind == "CSV":
        return textfiles.read_text_files(files, types, form, argument)
    if kind != "Parquet":
        frame, text = foreign.read_foreign(files[0], argument)
        return _register(Frame(frame), types, argument, text)
    with engine_errors(argument, f"could not be read ({', '.join(paths)})"):
        connection, reading, stored = parquet_relation(paths, files, argument)
        return converted(connection, reading, types, argument, stored=stored)


def parquet_relation(paths: Sequence[str], files: Sequence[str], argument: str) -> tuple[Any, str, dict[str, Stored]]:
    """Return a private DuckDB, the SQL with which it reads Parquet files, and the types in the schema of the files."""
    connection, stored = private_duckdb(files), _common_types(files, argument)
    hive = hive_columns(paths, files)
    stored |= dict.fromkeys(hive, Stored("string", dt.string))
    check_names(stored, argument)
    listed = ", ".join(literal(glob.escape(file)) for file in files)
    reading = (
        f"read_parquet([{listed}], hive_partitioning = {bool(hive)}, hive_types_autocast = false, union_by_name = true)"
    )
    return connection, f"(SELECT {', '.join(map(quoted, stored))} FROM {reading})", stored


def files_of_one_kind(paths: Sequence[str], has_form: bool, argument: str) -> tuple[list[str], str]:
    """Return the files that paths stand for, and their kind; raise unless they can be read as one table."""
    files = [file for path in paths for file in matching_files(path, argument)]
    kinds = {file_kind(file, argument) for file in files}
    if len(kinds) > 1:
        raise ParameterError(
            argument,
            allowed="files of one kind",
            given=Shown(" and ".join(sorted(kinds))),
            remedy="convert them to one kind",
        )
    (kind,) = kinds
    if has_form and kind != "CSV":
        raise ParameterError(
            "csv",
            allowed="given for CSV files only",
            given=Shown(f"{kind} files"),
            remedy="leave it out",
            code="conflict",
        )
    if kind not in ("CSV", "Parquet") and len(files) > 1:
        raise ParameterError(argument, allowed=f"one {kind} file", given=len(files), remedy="combine them into one")
    return files, kind


def hive_columns(paths: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the columns that subfolders such as state=TX stand for: they are text unless declared otherwise."""
    folders = [os.path.abspath(path) for path in paths if os.path.isdir(path)]
    found: list[list[str]] = []
    for file in files:
        for folder in folders:
            if Path(os.path.abspath(file)).is_relative_to(folder):
                parts = os.path.relpath(os.path.dirname(os.path.abspath(file)), folder).split(os.sep)
                found.append([part.partition("=")[0] for part in parts if "=" in part])
    if found and any(names != found[0] for names in found):
        raise ParameterError(
            "data",
            "must have the same levels, such as state=TX, in all folders of a partitioned table",
            code="mismatch",
            remedy="move the files",
        )
    return found[0] if found else []


def _common_types(files: Sequence[str], argument: str) -> dict[str, Stored]:
    """Return the types of Parquet files, or raise if they differ: those of the first would be applied to the others."""
    first = parquet_types(files[0], argument)
    for file in files[1:]:
        if parquet_types(file, argument) != first:
            raise ParameterError(
                f"{files[0]} and {file}",
                "must have the same columns, of the same types, but differ",
                code="mismatch",
                remedy=f"name the files that belong together: {', '.join(files[:5])}{', …' * (len(files) > 5)}",
            )
    return first


def matching_files(path: str, argument: str) -> list[str]:
    """Return the files of a path, of a glob or of a folder of Parquet files, in order."""
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if name.lower().endswith(PARQUET)
            and not any(
                part.startswith(("_", ".")) for part in os.path.relpath(os.path.join(folder, name), path).split(os.sep)
            )
        )
        if not found:
            raise ParameterError(
                f"{argument}: the folder {path}",
                "has no Parquet files",
                code="missing",
                remedy="for files of another kind, give their paths",
            )
        return found
    found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not found:
        raise ParameterError(argument, f"matches no file: {path}", code="missing", remedy=_files_like(path))
    return found


def _files_like(path: str) -> str:
    """Return the remedy for a file that does not exist: the name of a similar one in its folder, if there is one."""
    folder, name = os.path.split(path)
    try:
        there = os.listdir(folder or ".")
    except OSError:
        return f"there is no folder {folder}"
    near = next((one for one in there if os.path.splitext(one)[0] == name), None) or similar(name, there)
    return f"did you mean {os.path.join(folder, near)}?" if near else "check the path"


def file_kind(path: str, argument: str) -> str:
    """Return the kind of a file, by the ending of its path."""
    lowered = path.lower()
    if lowered.endswith(PARQUET):
        return "Parquet"
    if textfiles.is_text_file(path):
        return "CSV"
    if foreign.is_foreign(path):
        return "Excel" if lowered.endswith(foreign.EXCEL) else "Stata, SPSS or SAS"
    endings = ", ".join((*PARQUET, *textfiles.TEXT_ENDINGS, *foreign.FOREIGN_ENDINGS))
    raise ParameterError(
        argument, allowed=f"a file that ends in {endings} (text files also in .gz or .zst)", given=Shown(path)
    )


# Databases


@dataclass(frozen=True)
class Address:
    """The parts of a database address, so that errors can show it without its secrets."""

    scheme: str
    user: str | None
    password: str | None
    place: str
    options: Mapping[str, str]

    @staticmethod
    def of(text: str) -> "Address":
        """Parse an address; the password may contain any character."""
        scheme, _, rest = text.partition("://")
        before, _, after = rest.partition("?")
        # A question mark before the host, whose "@" comes later, belongs to the password.
        owned = "@" in after.partition("=")[0] or ("@" in after and "/" not in before and "@" not in before)
        rest, query = (rest, "") if owned else (before, after)
        owner, at, place = rest.rpartition("@")
        user, _, password = owner.partition(":")
        secret = unquote(password) if password else None
        return Address(scheme, unquote(user) if at else None, secret, place, dict(parse_qsl(query)))

    def __str__(self) -> str:
        """Return the address without its password, or only its scheme if a part of it may be a misplaced secret."""
        if self.scheme == "duckdb":
            return f"{self.scheme}://{self.place}"
        plain = re.fullmatch(r"[\w.%+@-]*", self.user or "")
        if not plain or not re.fullmatch(r"[\w.%-]*(:\d+)?(/[\w.%-]*)*", self.place):
            return f"{self.scheme}://…"
        return f"{self.scheme}://{self.user}@{self.place}" if self.user else f"{self.scheme}://{self.place}"

    def explain(self, error: Exception) -> str:
        """Return the message of an engine, or only the type of the error if the message may contain a secret."""
        words = first_line(error)
        secrets = [secret for secret in (self.password, *self.options.values()) if secret]
        hidden = str(self).endswith("…") or any(secret in words for secret in secrets)
        return type(error).__name__ if hidden else words


def address_scheme(text: str, argument: str) -> str:
    """Return the scheme of a database address in lower case, or raise if it is not supported."""
    scheme = text.partition("://")[0].lower()
    if scheme == "sqlite":
        raise ParameterError(
            argument,
            "is a SQLite file, which is not a supported source",
            code="unsupported",
            remedy="export the table to Parquet or CSV",
        )
    if scheme not in CONNECT:
        got = f"{scheme}://" if re.fullmatch(r"\w+", scheme) else "another scheme"
        raise ParameterError(
            argument,
            allowed="a local file, or an address that starts with postgresql:// or duckdb://",
            given=Shown(got),
        )
    return scheme


def _open_address(text: str, argument: str) -> Source:
    scheme, (place, _, name) = address_scheme(text, argument), text.rpartition("#")
    if not re.fullmatch(r"[\w.]+", name):
        raise ParameterError(
            argument, allowed='an address with the name of a table at its end, as in "postgresql://host/database#table"'
        )
    address = Address.of(place)
    schema, _, table = name.rpartition(".")
    if scheme == "duckdb" and not os.path.isfile(address.place):
        raise ParameterError(
            f"{argument}: the file {address.place}", "does not exist", code="missing", remedy="check the path"
        )
    try:
        connection, database = CONNECT[scheme](address, schema)
    except ImportError:
        raise EngineError(
            argument, f"could not be reached ({address})", code="not-installed", remedy=install_hint("postgres")
        ) from None
    except Exception as error:
        raise EngineError(
            argument, f"could not be reached ({address}): {address.explain(error)}", code="unreachable"
        ) from None
    try:
        found = connection.table(table, database=database)
    except Exception as error:
        if isinstance(error, ImportError):
            raise
        if isinstance(error, duckdb.PermissionException):
            raise ParameterError(
                f"{argument}: {name} in {address}",
                "is a view that reads other files, which is not allowed",
                code="unsupported",
                remedy="give the paths of these files instead, or store the view as a table",
            ) from None
        raise EngineError(
            f"{argument}: the table {name} in {address}",
            "does not exist or cannot be read",
            code="unreadable",
            remedy="check its name and access, and the types of its columns",
        ) from None
    with engine_errors(argument, quote=False):
        engine_of(found).check(connection)
        return replace(_usable(found, argument), view=engine_of(found).is_view(connection, found.op()))


def _connect_duckdb(address: Address, schema: str) -> tuple[Any, Any]:
    connection = private_duckdb(database=address.place)
    connection.is_private = False  # the file's columns may have collations
    return connection, ("data", schema or "main")


def _connect_postgres(address: Address, schema: str) -> tuple[Any, Any]:
    server, _, database = address.place.partition("/")
    host, _, port = server.rpartition(":") if re.search(r":\d+$", server) else (server, "", "")
    options: dict[str, Any] = dict(address.options)
    if address.password is not None:
        options["password"] = address.password
    if address.user:
        options["user"] = address.user
    if port:
        options["port"] = int(port)
    if host:
        options["host"] = unquote(host)
    return ibis.postgres.connect(database=unquote(database) or None, **options), schema or None


CONNECT = {
    "duckdb": _connect_duckdb,
    "postgresql": _connect_postgres,
    "postgres": _connect_postgres,
}
# Spark

# The operators of a DataFrame that keep the rows of one stored table.
ROW_BY_ROW = {
    "LogicalRelation", "LogicalRDD", "LocalRelation", "HiveTableRelation", "DataSourceV2Relation", "InMemoryRelation",
    "Project", "Filter", "SubqueryAlias", "View", "Sort", "Repartition", "RepartitionByExpression", "ResolvedHint",
}  # fmt: skip


def _open_spark(frame: Any) -> Source:
    if not hasattr(frame, "createOrReplaceTempView"):
        raise ParameterTypeError("data", allowed=ALLOWED, given=type(frame))
    with engine_errors("the Spark DataFrame", "could not be read"):
        session = frame.sparkSession
        connection = ask_spark(session, lambda: ibis.pyspark.connect(session))
        engine_of_connection(connection).check(connection)
        return ask_spark(session, lambda: _spark_view(connection, frame))


def _spark_view(connection: Any, frame: Any) -> Source:
    """Return a DataFrame as a temporary view, without the columns whose type is not supported."""
    unusable = _unusable_spark(frame)
    if unusable:
        frame = _spark_columns(frame, [name for name in frame.columns if name not in unusable])
    name = f"slowscale_{os.getpid()}_{fresh_name('view')}"
    frame.createOrReplaceTempView(name)
    return replace(_inspect_spark(frame, connection.table(name)), unusable=unusable)


def _spark_query(connection: Any, table: ir.Table) -> Source:
    """Return an Ibis table on Spark, without the columns whose type is not supported."""
    frame = connection._session.sql(connection.compile(table))
    unusable = _unusable_spark(frame)
    return replace(_inspect_spark(frame, table.drop(*unusable)), unusable=unusable)


def _spark_columns(frame: Any, names: Sequence[str]) -> Any:
    """Return some columns of a DataFrame."""
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in names))


def _unusable_spark(frame: Any) -> dict[str, str]:
    """Return the columns of a DataFrame whose type is not supported, with that type."""
    return {
        column.name: column.dataType.simpleString()
        for column in frame.schema.fields
        if not _is_supported_by_spark(column.dataType)
    }


def _is_supported_by_spark(dtype: Any) -> bool:
    from ibis.backends.pyspark.datatypes import PySparkType

    try:
        return is_supported(PySparkType.to_ibis(dtype))
    except Exception:  # Ibis does not have the type
        return False


def _inspect_spark(frame: Any, table: ir.Table) -> Source:
    """Return a Spark table with what its plan shows: whether it combines or filters rows, and its stored columns."""
    names, stored, deterministic = (_connect_plan if is_connect(frame.sparkSession) else _classic_plan)(frame)
    if not deterministic or "Sample" in names:
        raise ParameterError(
            "data",
            "must be the same each time it is computed",
            code="nondeterministic",
            given=Shown("a random or sampled Spark DataFrame"),
            remedy="store it as a table first",
        )
    return Source(table, view=not names <= ROW_BY_ROW, filtered="Filter" in names, stored=frozenset(stored))


# The names of the operators of a DataFrame, its columns that are stored, and whether it is deterministic.
SparkPlan = tuple[set[str], set[str], bool]


def _classic_plan(frame: Any) -> SparkPlan:
    """Return what the plan of a DataFrame of a classic session has."""
    plan = frame._jdf.queryExecution().analyzed()
    names: set[str] = set()
    stored: dict[int, str] = {}
    todo = [plan]
    while todo:
        node = todo.pop()
        names.add(node.getClass().getSimpleName())
        children = _elements(node.children())
        todo += children
        if not children:
            stored |= {column.exprId().id(): column.name() for column in _elements(node.output())}
    if plan.subqueriesAll().nonEmpty():
        names.add("subquery")
    # A column is a stored one if its id and its name are those of a column that the plan reads.
    columns = {c.name() for c in _elements(plan.output()) if stored.get(c.exprId().id()) == c.name()}
    return names, columns, plan.deterministic()


# An operator in the text of a plan that is a chain; what branches off, a join or a subquery, begins with a colon.
PLAN_LINE = re.compile(r"( *\+- )?(\w+)")
PLAN_COLUMN = re.compile(r"\b(\w+)#(\d+)")
# Operators that the text of a plan names otherwise than the class.
PLAN_NAMES = {"Relation": "LogicalRelation", "RelationV2": "DataSourceV2Relation"}
RANDOM = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id|input_file_name"
    r"|input_file_block_start|input_file_block_length|reflect|java_method|try_reflect)\(",
    re.IGNORECASE,
)


def _connect_plan(frame: Any) -> SparkPlan:
    """Return what the plan of a DataFrame of Spark Connect has, which a client gets as text only.

    A name with other characters than letters, digits and underscores is not recognized: its column is not stored.
    """
    settings, name = frame.sparkSession.conf, "spark.sql.debug.maxToStringFields"
    before = settings.get(name)
    settings.set(name, "100000")  # otherwise columns after the 25th are left out
    try:
        # A last operator that lists the columns.
        text = _spark_columns(frame, frame.columns)._explain_string(extended=True)
    finally:
        settings.set(name, before)
    found = re.search(r"^== Analyzed Logical Plan ==\n.*\n((?s:.)*?)\n\n== ", text, re.MULTILINE)
    if found is None:
        return {"unknown"}, set(), True
    lines = found[1].splitlines()
    operators = [match[2] if (match := PLAN_LINE.match(line)) else "unknown" for line in lines]
    columns = dict(reversed(column) for column in PLAN_COLUMN.findall(lines[0]))
    read = dict(reversed(column) for column in PLAN_COLUMN.findall(lines[-1]))
    stored = {name for key, name in columns.items() if read.get(key) == name}
    return {PLAN_NAMES.get(name, name) for name in operators}, stored, RANDOM.search(found[1]) is None


def _elements(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(i) for i in range(sequence.size())]


Given = dict[str, Any]


@contextmanager
def outline(
    data: str | Sequence[str], types: Mapping[str, str] | None = None, csv: Mapping[str, Any] | None = None
) -> Iterator[Given]:
    """Yield the arguments of a session on a table with the columns of the data and no records.

    Only the header or the schema is read.

    Parameters
    ----------
    data
        The paths of files, or the address of a database table.
    types, csv
        As in `ss.Session`.
    """
    paths = [data] if isinstance(data, str) else list(data)
    if len(paths) == 1 and "://" in paths[0]:
        table = open_table(paths[0], types, csv)
        yield {"data": table.filter(ibis.literal(False))}
        return
    files, kind = files_of_one_kind(paths, csv is not None, "data")
    if kind == "CSV":
        form = CsvFormat.of(csv)
        with engine_errors("data"):
            names = _common_header(files, form)
        with _empty_file() as place:
            yield {"data": place, "types": types, "csv": {**(csv or {}), "encoding": "utf-8", "header": names}}
    elif kind == "Parquet":
        yield {"data": _parquet_outline(paths, files), "types": types}
    elif files[0].lower().endswith(foreign.EXCEL):
        # Its cells are text, like those of a CSV file.
        with foreign.foreign_errors(files[0], "data"):
            header = foreign.excel_header(files[0], "data")
        with _empty_file() as place:
            yield {"data": place, "types": types, "csv": {"header": header}}
    else:
        yield {"data": _statistics_outline(files[0]), "types": types}


@contextmanager
def _empty_file() -> Iterator[str]:
    """Yield the path of a temporary CSV file without lines."""
    with tempfile.TemporaryDirectory(prefix="slowscale-") as folder:
        place = os.path.join(folder, "header.csv")
        with open(place, "xb"):
            pass
        yield place


def _common_header(files: Sequence[str], form: CsvFormat) -> tuple[str, ...]:
    names = textfiles.header_of(files[0], form, "data")
    for file in files[1:]:
        textfiles.check_same_header(names, textfiles.header_of(file, form, "data"), files[0], file, "data")
    return names


def _parquet_outline(paths: Sequence[str], files: Sequence[str]) -> pa.Table:
    with engine_errors("data", f"could not be read ({', '.join(paths)})"):
        # Read by DuckDB, as in a release: for some types, such as enums, DuckDB and Arrow disagree.
        connection, reading, stored = parquet_relation(paths, files, "data")
        found = connection.con.execute(f"SELECT * FROM {reading} LIMIT 0").to_arrow_table()
        schema = pa.parquet.read_schema(files[0])
        for name, known in arrow_types(schema).items():
            dtype = stored[name].dtype
            if dtype is None:  # a release leaves the column out, and so does a session on the outline
                given = schema.field(name).type if known.dtype is None else pa.null()
            elif dtype.is_uuid():
                given = pa.uuid()  # DuckDB returns text
            else:
                continue
            found = found.set_column(found.column_names.index(name), name, pa.array([], given))
        return found


def _statistics_outline(file: str) -> pa.Table:
    reader = next(reader for ending, reader in foreign.STATISTICS.items() if file.lower().endswith(ending))
    try:
        import pyreadstat
    except ImportError as error:
        raise EngineError(
            "data", f"could not be read ({file}): {error}", code="not-installed", remedy=install_hint("files")
        ) from error
    with engine_errors("data", f"could not be read ({file})", quote=False):
        _, meta = getattr(pyreadstat, reader)(file, metadataonly=True)
        declared = foreign.declared_types(reader, meta)
        return pa.schema({name: column.dtype for name, column in declared.items()}).empty_table()
