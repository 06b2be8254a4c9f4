"""The first mistakes of newcomers: each is reported in a few lines that say what is wrong, where, and how to mend it.

The tables have what was typed, where the report says the mistake is, and a part of the way out. In plans the place is a
line and a field, in commands an option, an argument or a file, and in Python the subject of the error.
"""

import io
import shlex
import sys
import warnings

import pandas as pd
import pytest

import slowscale as ss
from slowscale.cli.app import main
from slowscale.core.errors import DataError, LedgerError, ParameterError, ParameterTypeError

MOST_LINES = 6
PLAN = """\
[data]
path = "farms.csv"
name = "farms"
types = { cattle = "int64", opened = "date" }

[ledger]
path = "farms.ledger"

[ledger.caps.cattle]
mechanism = "gaussian"
std = 500
times = 3

[release]
period = "2024"
level = 0.95

[tables.cells]
keys = { file = "cells.csv", by = ["state"] }

[tables.cells.sums.cattle]
mechanism = "gaussian"
std = 500

[report]
sizes = [
  { name = "median farm", cattle = 120 },
  { name = "largest farm", cattle = 40_000 },
]

[output]
folder = "published"
formats = ["csv"]
"""
FILES = {
    "farms.csv": "state,firm,opened,cattle\nIA,f1,2020-01-31,120\nTX,f2,2021-02-01,4000\nTX,f1,2021-02-03,7\n",
    "cells.csv": "state\nIA\nTX\nWY\n",
    "semicolon.csv": "state;cattle\nIA;120\nTX;4000\n",
    "thousands.csv": 'state,cattle\nIA,"1,200"\nTX,"4,000"\n',
    "decimal.csv": "state;cattle\nIA;1,5\nTX;2,5\n",
    "empty.csv": "",
    "header.csv": "state,cattle\n",
    "american.csv": "state,opened,cattle\nIA,01/31/2020,5\n",
    "lower.csv": "state,cattle\nia,5\ntx,6\n",
    "nulls.csv": "state,cattle\nIA,\nTX,6\n",
    "negative.csv": "state,cattle\nIA,-5\nTX,6\n",
    "words.csv": "state,cattle\nIA,many\nTX,6\n",
    "twice.csv": "state,cattle,cattle\nIA,5,6\n",
    "latin.csv": b"state,cattle\nI\xe9,5\n",
    "utf16.csv": "state,cattle\nIA,5\n".encode("utf-16"),
    "fractions.csv": "state,cattle\nIA,12.5\nTX,6\n",
    "codes.csv": "state,cattle\nIA,NA\nTX,6\n",
    "ragged.csv": "state,cattle\nIA,5,6\nTX,7\n",
    "states2.csv": "region\nIA\nTX\n",
    "dup_cells.csv": "state\nIA\nIA\n",
    "pairs.csv": "state,sector\nIA,1\nIA,2\n",
    "book.txt": "hello",
    "picture.png": b"\x89PNG\r\n\x1a\n0000",
    "fake.parquet": "state,cattle\nIA,5\n",
    "fake.xlsx": "state,cattle\nIA,5\n",
    "columns.toml": "[cattle]\nrecords = { median = 12, largest = 4e4 }\ninterval = 30\n",
    "plan.toml": PLAN,
}

# Parts of the plan that are replaced.
GAUSSIAN = 'sums.cattle]\nmechanism = "gaussian"\nstd = 500'
KEYS = 'keys = { file = "cells.csv", by = ["state"] }'
SUMS = "sums.cattle]\n"
TYPES = 'types = { cattle = "int64", opened = "date" }'
FORMATS = 'formats = ["csv"]'
FILE = 'path = "farms.csv"'
NAME = 'name = "farms"'

# What is replaced in the plan, by what; the place, a part of the way out, and the exit code.
PLANS = [
    ("sums.cattle]", "sums.catle]", "line 26, report.sizes", "it has 'cattle': correct the name here, or", 2),
    ("sums.cattle]", "sums.Cattle]", "line 26, report.sizes", "it has 'cattle': correct the name here, or", 2),
    (
        'sums.cattle]\nmechanism = "gaussian"',
        'sums.cattle]\nmechanism = "gausian"',
        "line 22, tables.cells.sums.cattle.mechanism",
        "did you mean 'gaussian'?",
        2,
    ),
    (
        'sums.cattle]\nmechanism = "gaussian"',
        'sums.cattle]\nmechanism = "normal"',
        "line 22, tables.cells.sums.cattle.mechanism",
        "did you mean 'gaussian'?",
        2,
    ),
    (
        'sums.cattle]\nmechanism = "gaussian"',
        'sums.cattle]\nmechanism = "geometric"',
        "line 22, tables.cells.sums.cattle.mechanism",
        "did you mean 'laplace'?",
        2,
    ),
    (
        'sums.cattle]\nmechanism = "gaussian"',
        'sums.cattle]\nmechanism = "Log-Laplace"',
        "line 22, tables.cells.sums.cattle.mechanism",
        'did you mean mechanism = "log", noise = "laplace"?',
        2,
    ),
    ("level = 0.95", "level = 0,95", "plan.toml", "numbers have a decimal point and no other separator", 2),
    ("std = 500\n\n[report]", "std = 13.000.000\n\n[report]", "plan.toml", "a decimal point and no other separator", 2),
    (NAME, NAME + '\nwhere = "state = 3"', "line 4, data.where", "write text in single quotes, as in '01003'", 2),
    (NAME, NAME + "\nwhere = 'state = \"IA\"'", "line 4, data.where", "text is in single quotes", 2),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "laplace"\nepsilon = 1',
        "line 23, tables.cells.sums.cattle.epsilon",
        "or loss, which is a zCDP loss, with at for",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nstd = "500"',
        "line 23, tables.cells.sums.cattle.std",
        "write it without quotes",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nstd = -500',
        "line 23, tables.cells.sums.cattle.std",
        "must be greater than 0, got -500",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nstd = 0',
        "line 23, tables.cells.sums.cattle.std",
        "must be greater than 0, got 0",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nstd = 500\ninterval = 1000',
        "line 21, tables.cells.sums.cattle",
        "give one target, std, interval or loss, not",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"',
        "line 21, tables.cells.sums.cattle",
        "gaussian needs sigma, or std, interval or",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "log"\nstd = 500\na = 10',
        "line 21, tables.cells.sums.cattle",
        "give the sum that is to have this std",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nsigma = 5\nk = 4',
        "line 21, tables.cells.sums.cattle",
        "it has sigma",
        2,
    ),
    (
        GAUSSIAN,
        SUMS + 'mechanism = "gaussian"\nstdev = 500',
        "line 23, tables.cells.sums.cattle.stdev",
        "did you mean std?",
        2,
    ),
    ("level = 0.95", "level = 95", "line 16, release.level", "95 % is 0.95", 2),
    ("level = 0.95", 'level = "95 %"', "line 16, release.level", "write it without quotes", 2),
    ('cattle = "int64"', 'cattle = "integer"', "line 4, data.types", "did you mean 'int64'?", 2),
    ('cattle = "int64"', 'catle = "int64"', "line 1, data", "did you mean 'cattle'?", 2),
    (FILE, 'path = "farm.csv"', "line 1, data", "did you mean farms.csv?", 2),
    (FILE, 'path = "plan.toml"', "line 1, data", "data must be a file that ends in .parquet", 2),
    (FILE, 'path = "picture.png"', "line 1, data", "data must be a file that ends in .parquet", 2),
    ('path = "farms.csv"\n', "", "line 1, data", "give either path or database", 2),
    (
        'path = "farms.csv"\nname = "farms"\ntypes = { cattle = "int64", opened = "date" }',
        'path = "semicolon.csv"\nname = "farms"\ntypes = { cattle = "int64" }',
        "line 1, data",
        'in a plan, csv = { delimiter = ";" }',
        2,
    ),
    (FILE, 'path = "empty.csv"', "line 1, data", "if the file has no header, give the names", 2),
    (
        'path = "farms.csv"\nname = "farms"\ntypes = { cattle = "int64", opened = "date" }',
        'path = "fake.parquet"\nname = "farms"',
        "line 1, data",
        "data could not be read (fake.parquet)",
        3,
    ),
    (FILE, 'path = "fake.xlsx"', "line 1, data", "save the file again in its program", 3),
    (FILE, 'path = "postgresql://h/db#t"', "line 2, data.path", "for a database table use database =", 2),
    (
        NAME,
        NAME + '\ncsv = { delimiter = "semicolon" }',
        "line 4, data.csv",
        "csv delimiter must be one character such as",
        2,
    ),
    (NAME, NAME + '\ncsv = { sep = ";" }', "line 4, data.csv.sep", "did you mean delimiter?", 2),
    (NAME, NAME + '\nprotect = "frm"', "line 4, data.protect", "the columns are state, firm, opened, cattle", 2),
    (NAME, NAME + '\nwhere = "catle > 0"', "line 4, data.where", "did you mean 'cattle'?", 2),
    (NAME, NAME + '\nwhere = "cattle >"', "line 4, data.where", "it is incomplete: something is missing near", 2),
    ('by = ["state"]', 'by = ["sate"]', "line 19, tables.cells.keys", "did you mean 'state'?", 2),
    ('by = ["state"]', 'by = "state"', "line 19, tables.cells.keys.by", "write it in brackets: [ … ]", 2),
    ('file = "cells.csv"', 'file = "cell.csv"', "line 19, tables.cells.keys", "did you mean cells.csv?", 2),
    (
        'file = "cells.csv"',
        'file = "farms.csv"',
        "line 19, tables.cells.keys",
        "use a public list of labels, or declare",
        2,
    ),
    ('file = "cells.csv"', 'file = "states2.csv"', "line 19, tables.cells.keys", "the columns are region", 2),
    ('file = "cells.csv"', 'file = "dup_cells.csv"', "line 19, tables.cells.keys", "remove it", 2),
    (
        KEYS,
        'keys = { cross = { state = "IA" } }',
        "line 19, tables.cells.keys.cross.state",
        "write it in brackets: [ … ]",
        2,
    ),
    (
        KEYS,
        "keys = { cross = { state = [1, 2] } }",
        "line 19, tables.cells.keys",
        "give keys of the column's type, or declare",
        2,
    ),
    (KEYS, "keys = { cross = { state = [] } }", "line 19, tables.cells.keys", "give at least one row", 2),
    (
        KEYS,
        'keys = { cross = { opened = ["2020-01-31"] } }',
        "line 19, tables.cells.keys",
        "give keys of the column's type, or declare",
        2,
    ),
    (KEYS, 'keys = { cross = { state = ["IA", "IA"] } }', "line 19, tables.cells.keys", "remove it", 2),
    (KEYS, 'keys = ["IA"]', "line 19, tables.cells.keys", 'keys = { file = "cells.csv", by = ["county"] }', 2),
    (KEYS, 'keys = { by = ["state"] }', "line 19, tables.cells.keys", "or remove keys to publish totals over all", 2),
    (
        '  { name = "largest farm", cattle = 40_000 },\n',
        "",
        "line 26, report.sizes",
        "name it 'largest firm', for example",
        2,
    ),
    (
        '"largest farm", cattle',
        '"largest farm", catle',
        "line 26, report.sizes",
        "it has 'catle': correct the name here, or",
        2,
    ),
    ("cattle = 40_000", "cattle = 4", "line 26, report.sizes", "correct the value of one of the two", 2),
    ("cattle = 40_000", 'cattle = "40,000"', "line 26, report.sizes", "sizes: 'largest farm', cattle must be a", 2),
    ("cattle = 120", "cattle = -120", "line 26, report.sizes", "sizes: 'median farm', cattle must be a", 2),
    (
        '[output]\nfolder = "published"\nformats = ["csv"]\n',
        "",
        "line 1, output",
        "is missing: add the table [output] with",
        2,
    ),
    (FORMATS, 'formats = ["xlsx"]', "line 33, output.formats.0", 'did you mean basic = ["table.xlsx"] in', 2),
    (FORMATS, 'formats = "csv"', "line 33, output.formats", "write it in brackets: [ … ]", 2),
    (FORMATS, 'xlsx = "table.xlsx"', "line 33, output.xlsx", 'did you mean basic = ["table.xlsx"] in', 2),
    (FORMATS, 'report = "report.pdf"', "line 33, output.report", "must end in .html", 2),
    (FORMATS, 'title = "Cattle"', "line 33, output.title", "did you mean title in [publication]?", 2),
    ('folder = "published"', 'folder = "cells.csv"', "line 32, output.folder", "choose another folder", 2),
    (FORMATS, 'sign = "my.key"', "line 33, output.sign", "`slowscale keygen` makes keys", 2),
    ("caps.cattle]", "caps.catle]", "line 9, ledger.caps.catle", "did you mean 'cattle'?", 2),
    (
        '[ledger.caps.cattle]\nmechanism = "gaussian"\nstd = 500\ntimes = 3\n',
        "[ledger.caps]\ncattle = 3\n",
        "line 10, ledger.caps.cattle",
        "must be a table such as cattle = {",
        2,
    ),
    ("[ledger.caps.cattle]", "[caps.cattle]", "line 9, caps", "did you mean caps in [ledger]?", 2),
    (
        'path = "farms.ledger"',
        'path = "cells.csv"',
        "line 7, ledger.path",
        "give the path of a ledger, or another path",
        5,
    ),
    (
        '[ledger]\npath = "farms.ledger"\n\n[ledger.caps.cattle]\nmechanism = "gaussian"\nstd = 500\ntimes = 3\n',
        'ledger = "farms.ledger"\n',
        "line 6, data.ledger",
        "did you mean the table [ledger], on a line",
        2,
    ),
    ('path = "farms.ledger"', 'path = "none/farms.ledger"', "line 7, ledger.path", "create it first", 2),
    ("[report]", "[reprot]", "line 25, reprot", "did you mean report?", 2),
    ("[tables.cells]", "[table.cells]", "line 18, table", "did you mean tables?", 2),
    (
        "[tables.cells]\n" + KEYS + "\n\n[tables.cells." + GAUSSIAN + "\n",
        "",
        "plan.toml",
        "only `slowscale quantiles` takes a plan",
        2,
    ),
    (
        '\n[tables.cells.sums.cattle]\nmechanism = "gaussian"\nstd = 500\n',
        "",
        "line 18, tables.cells",
        "name a column with its mechanism, or a",
        2,
    ),
    ('period = "2024"', "period = 2024", "line 15, release.period", "write it in quotes", 2),
    (NAME, "name = farms", "plan.toml", "texts are in quotes, true and false in", 2),
    (NAME, NAME + "\n[tables.x]\nnonnegative = True", "plan.toml", "texts are in quotes, true and false in", 2),
    ("level = 0.95", "level = 0.95\nlevel = 0.9", "plan.toml", "texts are in quotes, true and false in", 2),
    (FILE, 'path = "C:\\data\\farms.csv"', "plan.toml", "texts are in quotes, true and false in", 2),
    (
        "[tables.cells]",
        '[tables.cells]\nnulls = "ignore"',
        "line 19, tables.cells.nulls",
        "must be 'error' or 'zero', got 'ignore'",
        2,
    ),
    (
        "[tables.cells]",
        "[tables.cells]\nnegatives = true",
        "line 19, tables.cells.negatives",
        "must be 'error' or 'zero', got true",
        2,
    ),
    (NAME, NAME + '\nnulls = "zero"', "line 4, data.nulls", "did you mean nulls in [tables.NAME]?", 2),
    (
        'file = "cells.csv"',
        'file = "pairs.csv"',
        "line 19, tables.cells.keys",
        "group by state, sector, all columns of pairs.csv, or name a file with one row per state",
        2,
    ),
    (
        "[tables.cells]",
        "[tables.cells]\ncount = true",
        "line 19, tables.cells.count",
        "must be a table such as count = { mechanism",
        2,
    ),
    (
        "[report]",
        '[tables.total]\nrollup = "cell"\n\n[report]',
        "line 26, tables.total.rollup",
        "the tables are cells, total",
        2,
    ),
    (
        "[report]",
        '[tables.total]\nrollup = "cells"\nby = ["county"]\n\n[report]',
        "line 27, tables.total.by",
        "name key columns of that table, or give the",
        2,
    ),
    (
        "level = 0.95",
        'partition = "county"',
        "line 16, release.partition",
        "partition must be a key column of every",
        2,
    ),
    ("level = 0.95", 'accounting = "rdp"', "line 16, release.accounting", "must be 'closed' or 'tight', got text", 2),
    (
        "[output]",
        '[publication]\nsource = "x"\n\n[output]',
        "line 31, publication.title",
        "is missing: add a line title = …",
        2,
    ),
    (
        "[output]",
        '[publication]\ntitle = "x"\ncolumns = { catle = { title = "Cattle" } }\n\n[output]',
        "line 33, publication.columns.catle",
        "did you mean 'cattle'?",
        2,
    ),
    (
        "[output]",
        '[publication]\ntitle = "x"\ncodes = { state = "none.csv" }\n\n[output]',
        "line 31, publication",
        "give a CSV file in UTF-8",
        2,
    ),
    (SUMS, SUMS + "unit = 0.1\n", "line 22, tables.cells.sums.cattle.unit", 'write unit = "0.1"', 2),
]

# What was typed after "slowscale"; the place, a part of the way out, and the exit code.
COMMANDS = [
    ("version", "version", "Did you mean slowscale --version?", 2),
    ("help", "help", "Did you mean slowscale --help?", 2),
    ("plan.toml", "plan.toml", "Did you mean slowscale check plan.toml?", 2),
    ("farms.csv", "farms.csv", "Did you mean slowscale init farms.csv?", 2),
    ("chekc plan.toml", "chekc", "Did you mean 'check'?", 2),
    ("publish plan.toml", "publish", "Did you mean 'release'?", 2),
    ("check farms.csv", "farms.csv", "`slowscale init farms.csv` writes a", 2),
    ("check plna.toml", "plna.toml", "did you mean plan.toml?", 2),
    ("check", "Missing argument 'PLAN'", "`slowscale init` writes one", 2),
    ("check .", "?", "did you mean plan.toml?", 2),
    ("check fake.parquet", "fake.parquet", "`slowscale init fake.parquet` writes a", 2),
    ("release farms.csv --yes", "farms.csv", "`slowscale init farms.csv` writes a", 2),
    ("release plan.toml", "release", "cannot ask for confirmation, because", 6),
    ("release plan.toml --yes true", "--yes", "A flag such as --yes takes no value", 2),
    ("release plan.toml --yes=true", "Option '--yes' does not take", "A flag such as --yes takes no value", 2),
    ("release plan.toml –yes", "–yes", "The dash in –yes is not a hyphen: write", 2),
    ("release plan.toml -–yes true", "-–yes", "The dash in -–yes is not a hyphen", 2),
    ("release plan.toml -yes", "-yes", "Write two hyphens: --yes", 2),
    ("release plan.toml --overwirte", "--overwirte", "No such option: --overwirte (Possible", 2),
    ("release plan.toml --force", "--force", "Did you mean --overwrite?", 2),
    ("release plan.toml --finish", "release", "A drawn table that is missing is lost", 2),
    ("explain", "Missing argument", "Missing argument 'RELEASE|PLAN': A", 2),
    ("explain plan.toml", "--value is missing for cattle", "give one --value for each of cattle", 2),
    ("explain plan.toml --value catle=3", "--value", "give one --value for each of cattle", 2),
    ("explain plan.toml --value cattle=1,200", "--value", "numbers have no thousands separators", 2),
    ("explain plan.toml --value cattle:3", "--value", "--value must be a name and a number", 2),
    ("explain farms.csv --value cattle=3", "farms.csv", "give a released file or folder, or a", 2),
    ("explain published --value cattle=3", "published", "give a file or a folder that a release", 2),
    ("init farms", "farms", "did you mean farms.csv?", 2),
    ("init farm.csv", "farm.csv", "did you mean farms.csv?", 2),
    ("init plan.toml", "init", "`slowscale check plan.toml` checks it", 2),
    ("init farms.csv", "init", "`slowscale check plan.toml` checks it", 2),
    ("init new.toml farms.csv", "init", "the data comes first: slowscale init", 2),
    ("init picture.png n.toml", "picture.png", "data must be a file that ends in", 2),
    ("init empty.csv n.toml", "empty.csv", "if the file has no header, give the", 2),
    ("init sqlite://f.sqlite#t n.toml", "data is a SQLite file, which", "export the table to Parquet or CSV", 2),
    ("calibrate gausian --std 3", "gausian", "did you mean 'gaussian'?", 2),
    ("calibrate normal --std 3", "normal", "did you mean 'gaussian'?", 2),
    ("calibrate exponential-polylog --param x=3 --std 4", "exponential-polylog", "it has d, sigma, a, p", 2),
    ("calibrate gaussian --param k=3 --std 4", "gaussian", "it has sigma", 2),
    ("calibrate gaussian", "give one target", "give one target: --std for a standard", 2),
    ("calibrate gaussian --std 3 --interval 3", "--std", "give one target: --std for a standard", 2),
    ("calibrate gaussian --loss 1", "--at is missing", "give the record value that is to have", 2),
    ("calibrate gaussian --interval -5", "--interval", "--interval must be a finite number > 0", 2),
    ("calibrate gaussian --interval 5 --level 95", "--level", "95 % is 0.95", 2),
    ("compare --std 75", "Missing option '--at'", "Missing option '--at': The sum at which", 2),
    ("compare --std abc --at 3", "--std", "--std must be a number such as 75, 0.05", 2),
    ("compare --std 7,5 --at 3", "--std", "--std must be a number such as 75, 0.05", 2),
    ("compare --std 5% --at 3", "--std", "--std must be a number such as 75, 0.05", 2),
    ("compare --std 5 --at 3 --sizes median=3", "--sizes", "name it 'largest firm', for example", 2),
    ("compare --std 5 --at 3 --chart a.pdf", "--chart", "--chart must be a .png, .svg or .html", 2),
    ("advise", "--records is missing", "give --records, or a file with several", 2),
    ("advise --records median=1,largest=3", "the goal must be an accuracy", "the goal must be an accuracy", 2),
    ("advise --records median=1e6,largest=1e3 --interval 5", "records", "correct the value of one of the two", 2),
    ("advise --records median:3 --interval 5", "--records", "--records must be a name and a number", 2),
    ("advise --records 100,1000 --interval 5", "--records", "numbers have no thousands separators", 2),
    ("advise --records median=3,largest=9 --relative 5", "--relative", "5 % is 0.05", 2),
    ("advise --records largest=9 --interval 5 --level 95", "--level", "95 % is 0.95", 2),
    ("advise --records median=3,largest=9 --presence big=1", "--records", "the names are median, largest", 2),
    ("advise --records largest=9 --interval 5 --plan p.txt", "p.txt", "p.txt cannot be written: it must be a", 2),
    ("advise farms.csv", "farms.csv", "it needs a table for each column, such", 2),
    ("advise colums.toml", "colums.toml", "check the path", 2),
    ("advise columns.toml --records largest=3", "--records", "give only one of the two", 2),
    ("advise --records largest=40,000 --interval 5", "--records", "numbers have no thousands separators", 2),
    ("quantiles farms.csv --column catle --loss 0.1 --yes", "--column", "did you mean 'cattle'?", 2),
    ("quantiles farms.csv --column state --loss 0.1 --yes", "state", "correct these records, or leave them", 3),
    ("quantiles farms.csv --column cattle --yes", "quantiles", "Missing option '--loss': The PRzCDP", 2),
    ("quantiles farms.csv --column cattle --loss 0.1 --at 50 --yes", "0.1", "0.5 is the median", 2),
    ("quantiles farms.csv --column cattle --loss=-1 --yes", "quantiles", "it is the PRzCDP loss of all quantiles", 2),
    (
        "quantiles semicolon.csv --column cattle --loss 0.1 --yes",
        "semicolon.csv",
        'in a plan, csv = { delimiter = ";" }',
        2,
    ),
    ("quantiles plan.toml --column cattle --loss 0.1 --ledger x.ledger --yes", "--ledger", "edit the plan", 2),
    (
        "quantiles farms.csv --column cattle --loss 0.1",
        "cannot ask for confirmation",
        "cannot ask for confirmation, because",
        6,
    ),
    ("ledger show farm.ledger", "ledger", "check the path: the first release that", 5),
    ("ledger show farms.csv", "ledger", "If it was a ledger, it is damaged", 5),
    ("ledger shwo x", "shwo", "Did you mean 'show'?", 2),
    ("ledger farms.ledger", "ledger", "Did you mean slowscale ledger show", 2),
    ("ledger set-cap farms.ledger cattle", "Missing option '--reason'", "The reason stays in the history", 2),
    ("ledger show plan.toml", "ledger", "If it was a ledger, it is damaged", 5),
    ("sign published", "Missing option '--key'", "Missing option '--key': The secret key", 2),
    ("sign cells.csv --key none.key", "none.key", "`slowscale keygen` makes keys", 2),
    ("sign cells.csv --key farms.csv", "sign", "give a file that `slowscale keygen` or", 2),
    ("verify cells.csv --key none.pub", "none.pub", "`slowscale keygen` makes keys", 2),
    ("keygen", "Missing argument 'NAME'", "Missing argument 'NAME': Writes", 2),
    ("demo farms.csv", "farms.csv", "choose another folder", 2),
    ("serve farms.csv", "farms.csv", "for data, `slowscale init farms.csv`", 2),
    ("serve plan.toml --port http", "--port", "--port must be a whole number such as", 2),
    ("share farms.csv", "farms.csv.json", "CSV files for reading are rounded and have none", 2),
    ("schema plan.toml", "schema", "Put texts with blanks in quotes", 2),
    ("study --quik", "--quik", "No such option: --quik (Possible", 2),
    ("inspect farms.csv", "farms.csv", "`slowscale init farms.csv` writes a", 2),
    ("inspect plan.toml --p 10", "--p", "--p must be a finite number > 0 and <", 2),
    ("check plan.toml --sizes median=5", "--sizes", "name it 'largest firm', for example", 2),
    ("check plan.toml farms.csv", "check", "Put texts with blanks in quotes", 2),
]

# The call; the error, its subject, its code, and a part of the way out.
PYTHON = [
    ("ss.Gaussian(3)", ParameterTypeError, "Gaussian", "positional", "write Gaussian(sigma=3)"),
    ("ss.Gaussian(sigma=-1)", ParameterError, "sigma", "value", "a finite number > 0"),
    ("ss.Gaussian(sigma='5')", ParameterTypeError, "sigma", "type", "a finite number > 0"),
    ("ss.Gaussian(std=5)", ParameterTypeError, "std", "unknown-name", "to solve for a parameter, write"),
    ("ss.Gaussian(scale=5)", ParameterTypeError, "scale", "unknown-name", "it has sigma"),
    ("ss.Gaussian.calibrate()", ParameterTypeError, "the target", "missing", "exactly one of `std`, `interval` and"),
    (
        "ss.Gaussian.calibrate(std=5, interval=3)",
        ParameterTypeError,
        "the target",
        "conflict",
        "exactly one of `std`, `interval` and",
    ),
    ("ss.Gaussian.calibrate(interval=-3)", ParameterError, "interval", "value", "a finite number > 0"),
    ("ss.Gaussian.calibrate(interval=3, level=95)", ParameterError, "level", "value", "95 % is 0.95"),
    (
        "ss.Log(sigma=0.1, a=3, noise='gausian')",
        ParameterError,
        "noise",
        "value",
        "'gaussian' or 'laplace', or additive",
    ),
    ("ss.Root(k='4', sigma=3)", ParameterTypeError, "k", "type", "a finite number >= 1"),
    ("ss.Laplace(epsilon=1)", ParameterTypeError, "epsilon", "unknown-name", "it has sigma"),
    ("ss.Session('farm.csv')", ParameterError, "data", "missing", "did you mean farms.csv?"),
    ("ss.Session('plan.toml')", ParameterError, "data", "value", "a file that ends in .parquet, .pq"),
    ("ss.Session([1, 2])", ParameterTypeError, "data", "type", "a path of Parquet, CSV, Excel, Stata"),
    ("ss.Session(None)", ParameterTypeError, "data", "type", "a path of Parquet, CSV, Excel, Stata"),
    (
        "ss.Session('semicolon.csv')",
        ParameterError,
        "data: the header of semicolon.csv",
        "delimiter",
        'in a plan, csv = { delimiter = ";" }',
    ),
    (
        "ss.Session('empty.csv')",
        ParameterError,
        "data: the first line of empty.csv",
        "header",
        "if the file has no header, give the",
    ),
    ("ss.Session('twice.csv')", ParameterError, "data: the header of twice.csv", "duplicate", "rename them"),
    (
        "ss.Session('farms.csv', types={'catle': 'int64'})",
        ParameterError,
        "types",
        "unknown-column",
        "the columns are state, firm, opened",
    ),
    (
        "ss.Session('farms.csv', types={'cattle': 'integer'})",
        ParameterError,
        "types['cattle']",
        "value",
        "did you mean 'int64'?",
    ),
    (
        "ss.Session('farms.csv', types='int64')",
        ParameterTypeError,
        "types",
        "type",
        'a mapping such as {"county": "string"}',
    ),
    (
        "ss.Session(farms, protect='frm')",
        ParameterError,
        "protect",
        "unknown-column",
        "the columns are state, cattle, opened",
    ),
    (
        "ss.Session(farms, ledger='farms.csv')",
        LedgerError,
        "ledger",
        "damaged",
        "give the path of a ledger, or another",
    ),
    ("ss.Session(farms, ledger=3)", ParameterTypeError, "ledger", "type", "to charge a ledger, give the ledger"),
    ("ss.Session('farms.csv', csv={'sep': ';'})", ParameterError, "csv", "unknown-name", "did you mean 'delimiter'?"),
    (
        "ss.Session('farms.csv', csv={'delimiter': 'semicolon'})",
        ParameterError,
        "csv delimiter",
        "value",
        "one character such as ',' or ';'",
    ),
    ("s.sum('cattle')", ParameterTypeError, "columns", "type", "a mapping of columns to mechanisms"),
    ("s.sum('cattle', G)", ParameterTypeError, "columns", "type", "a mapping of columns to mechanisms"),
    ("s.sum({'catle': G})", ParameterError, "column 'catle'", "unknown-column", "did you mean 'cattle'?"),
    ("s.sum({'cattle': 5})", ParameterTypeError, "columns['cattle']", "type", "a mechanism such as"),
    ("s.sum({'cattle': 'gaussian'})", ParameterTypeError, "columns['cattle']", "type", "a mechanism such as"),
    ("s.sum({'cattle': ss.Gaussian})", ParameterTypeError, "columns['cattle']", "type", "a mechanism such as"),
    (
        "s.sum({'cattle': G}, by='state')",
        ParameterTypeError,
        "by",
        "unknown-name",
        "to group the records, give their public",
    ),
    ("s.sum({'cattle': G}, ['IA'])", ParameterTypeError, "keys", "type", "the labels that occur in the data may"),
    (
        "s.sum({'cattle': G}, group_by='state')",
        ParameterTypeError,
        "group_by",
        "unknown-name",
        "to group the records, give their public",
    ),
    (
        "s.sum({'state': G})",
        ParameterTypeError,
        "column 'state'",
        "not-numbers",
        "declare its type in types, or convert",
    ),
    ("s.sum({'cattle': G}, unit=0.1)", ParameterError, "unit", "precision", 'give the text "0.1"'),
    ("s.sum({'cattle': G}, unit=0)", ParameterError, "unit", "value", 'a number > 0 such as 1 or "0.01"'),
    (
        "s.sum({'cattle': G}, where='catle > 0')",
        ParameterError,
        "where",
        "unknown-column",
        "the columns are state, cattle, opened",
    ),
    ("s.sum({'cattle': G}, where=3)", ParameterTypeError, "where", "type", "to use Ibis expressions, prepare the"),
    (
        "s.sum({'cattle': G}, ss.Keys.from_frame({'county': ['1']}))",
        ParameterError,
        "column 'county'",
        "unknown-column",
        "the columns are state, cattle, opened",
    ),
    (
        "s.sum({'cattle': G}, ss.Keys.from_frame({'state': [1, 2]}))",
        ParameterTypeError,
        "by: column 'state'",
        "mismatch",
        "give keys of the column's type, or",
    ),
    ("s.sum({'cattle': G}, nulls='ignore')", ParameterError, "nulls", "value", '"error" or "zero"'),
    ("s.sum({'cattle': G}, null='zero')", ParameterTypeError, "null", "unknown-name", "did you mean 'nulls'?"),
    (
        "ss.Session(counties).sum({'cattle': G}, codes)",
        ParameterTypeError,
        "by: column 'county'",
        "mismatch",
        "read it with dtype=str in pandas",
    ),
    (
        "ss.Session(counties, types={'county': 'string'}).sum({'cattle': G}, codes)",
        ParameterError,
        "types['county']",
        "leading-zeros",
        "name the file itself as the data, or read it with dtype=str",
    ),
    ("r.explain(106)", ParameterTypeError, "record", "type", 'a mapping such as {"cattle": 12}'),
    ("ss.advise({'largest': 10}, 3)", ParameterTypeError, "advise", "arguments", "interval=100_000"),
    (
        "ss.Keys.cross(state=['IA'])",
        ParameterTypeError,
        "Keys.cross",
        "arguments",
        'Keys.cross({"state": ["IA", "TX"]})',
    ),
    ("s.sum({})", ParameterTypeError, "columns", "empty", "name a column with its mechanism, or a"),
    ("s.quantiles('catle', loss=0.1)", ParameterError, "column 'catle'", "unknown-column", "did you mean 'cattle'?"),
    ("s.quantiles('cattle', [50], loss=0.1)", ParameterError, "at", "value", "0.5 is the median"),
    ("s.quantiles('cattle', 0.5, loss=0)", ParameterError, "loss", "value", "it is the PRzCDP loss of all quantiles"),
    ("s.release({'cattle': G})", ParameterTypeError, "request", "type", "for one table of sums there is also"),
    ("s.release('cattle')", ParameterTypeError, "request", "type", "for one table of sums there is also"),
    (
        "s.release(ss.Request({'cells': ss.Rollup('cell')}))",
        ParameterError,
        "tables",
        "empty",
        "must have at least one drawn table, of",
    ),
    ("ss.Keys(['IA', 'TX'])", ParameterTypeError, "Keys", "type", "made by Keys.from_frame, .cross"),
    ("ss.Keys.from_frame(['IA'])", ParameterTypeError, "keys", "type", "a pandas, polars or pyarrow table or a"),
    ("ss.Keys.from_file('cell.csv', ['state'])", ParameterError, "keys", "missing", "did you mean cells.csv?"),
    (
        "ss.Keys.from_file('cells.csv', ['county'])",
        ParameterError,
        "columns",
        "unknown-column",
        "the columns are state",
    ),
    (
        "ss.Keys.from_data(s, ['state'], declared_public=False)",
        ParameterError,
        "declared_public",
        "value",
        "which labels occur may reveal records",
    ),
    ("ss.Keys.from_frame({'state': ['IA', 'IA']})", ParameterError, "keys", "duplicate", "remove it"),
    ("ss.Keys.cross({'state': 'IA'})", ParameterTypeError, "keys state", "type", "a list of labels"),
    ("ss.Keys.cross({'state': []})", ParameterError, "keys", "empty", "give at least one row"),
    ("ss.Keys.from_frame({'state': ['IA', None]})", ParameterTypeError, "keys state", "type", "labels of one type"),
    (
        "ss.advise({'median': 3, 'largest': 1}, interval=3)",
        ParameterError,
        "records: 'largest'",
        "not-largest",
        "correct the value of one of the two",
    ),
    ("ss.advise([1, 2], interval=3)", ParameterTypeError, "records", "type", 'names with sizes, such as {"median"'),
    (
        "ss.advise({'median': 3, 'largest': 10})",
        ParameterTypeError,
        "the goal",
        "missing",
        "must be an accuracy (`interval`, `std`",
    ),
    ("ss.advise({'largest': 10}, interval=3, level=95)", ParameterError, "level", "value", "95 % is 0.95"),
    ("ss.advise({'largest': 10}, relative=5)", ParameterError, "relative", "value", "5 % is 0.05"),
    (
        "ss.advise({'largest': '10'}, interval=3)",
        ParameterTypeError,
        "records['largest']",
        "type",
        "a finite number > 0",
    ),
    ("ss.advise({'largest': -10}, interval=3)", ParameterError, "records['largest']", "value", "a finite number > 0"),
    ("ss.advise({'largest': 10}, interval=0.1)", ParameterError, "unit", "value", "results are rounded to the unit"),
    ("ss.advise_columns({'cattle': 3})", ParameterTypeError, "columns", "type", "columns with arguments of `advise`"),
    (
        "ss.advise_columns({'cattle': {'interval': 3}})",
        ParameterTypeError,
        "records",
        "missing",
        "give names with sizes, such as",
    ),
    (
        "ss.advise_columns({'cattle': {'records': {'largest': 3}, 'intervall': 3}})",
        ParameterTypeError,
        "intervall",
        "unknown-name",
        "did you mean 'interval'?",
    ),
    ("ss.Ledger('none/x.ledger')", LedgerError, "ledger", "unwritable", "create its folder first"),
    ("ss.Ledger('farms.csv')", LedgerError, "ledger", "damaged", "give the path of a ledger, or another"),
    ("ss.read_release('nope')", ParameterError, "path:", "missing", "give a file or a folder that a release"),
    ("ss.read_release('farms.csv')", ParameterError, "path:", "missing", "CSV files for reading are rounded"),
    ("ss.guess_types('farm.csv')", ParameterError, "data", "missing", "did you mean farms.csv?"),
    ("ss.attacker(G)", ParameterTypeError, "influence", "missing", "give either `influence`, to ask whether"),
    ("ss.attacker(G, -1)", ParameterError, "influence", "value", "a finite number >= 0"),
    ("ss.compare(G)", ParameterTypeError, "mechanisms", "type", "a list or a mapping of mechanisms"),
    ("ss.Hierarchy('county', 3)", ParameterTypeError, "levels", "type", "a mapping of names of levels to"),
    ("ss.Publication(title=3)", ParameterTypeError, "title", "type", "text"),
    ("r.growth('cells.csv')", ParameterTypeError, "earlier", "type", "read the file with ss.read_release"),
    ("r.to_csv('out.xlsx')", ParameterError, "path", "value", "`publish` of a release writes Excel files"),
    ("r['catle']", ParameterError, "table", "unknown-name", "for a column, write to_pandas()[column]"),
    ("r.report('r.pdf')", ParameterError, "path", "value", "a path that ends in .html"),
    ("r.to_csv('plan.toml')", ParameterError, "path", "value", "a path that ends in .csv"),
    ("r.to_parquet('x.csv')", ParameterError, "path", "value", "a path that ends in .parquet"),
    ("s.inspect(3)", ParameterTypeError, "request", "type", "for one table of sums there is also"),
    (
        "ss.Session(farms.assign(cattle=[-1, 2])).sum({'cattle': ss.Log(sigma=0.1, a=10)})",
        DataError,
        "column 'cattle'",
        "negatives",
        "correct these records, or leave them",
    ),
    (
        "ss.Session(farms.assign(cattle=[None, 2])).sum({'cattle': G})",
        DataError,
        "column 'cattle'",
        "nulls",
        "correct these records, or leave them",
    ),
    (
        "ss.Session(farms.assign(cattle=[float('nan'), 2])).sum({'cattle': G})",
        DataError,
        "column 'cattle'",
        "nulls",
        "correct these records, or leave them",
    ),
    (
        "ss.Session(farms.assign(cattle=['1,200', '3'])).sum({'cattle': G})",
        ParameterTypeError,
        "column 'cattle'",
        "not-numbers",
        "declare its type in types, or convert",
    ),
    (
        "ss.Session(farms.assign(cattle=['many', '3'])).sum({'cattle': G})",
        ParameterTypeError,
        "column 'cattle'",
        "not-numbers",
        "declare its type in types, or convert",
    ),
]

# Data files with mistakes, and how a release of the plan that names them ends: a part of the report, and the exit code.
DATA = [
    ("thousands.csv", "column 'cattle' has values that are not int64", "no thousands separators", 3),
    ("words.csv", "column 'cattle' has values that are not int64", "correct them", 3),
    ("nulls.csv", "column 'cattle' has missing values", 'nulls = "zero"', 3),
    ("twice.csv", "the header of twice.csv", "rename them", 2),
    ("latin.csv", "latin.csv is not encoded in utf-8", 'csv={"encoding": "latin-1"}', 3),
    ("ragged.csv", "line 2 of ragged.csv", "correct the line", 3),
    ("utf16.csv", "utf16.csv is not encoded in utf-8", '"utf-16"', 3),
    ("latin.csv", "latin.csv is not encoded in utf-8", 'in a plan, csv = { encoding = "latin-1" }', 3),
    ("fractions.csv", "column 'cattle' has values that are not int64", "declare float64 or decimal(18, 2)", 3),
    ("codes.csv", "column 'cattle' has values that are not int64", "for codes such as NA", 3),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a plan, its data, and data with mistakes."""
    folder = tmp_path_factory.mktemp("farms")
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def folder(files, monkeypatch, capsys):
    """The same folder as it was, with the plan written anew."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    (files / "plan.toml").write_text(PLAN, encoding="utf-8")
    before = set(files.iterdir())
    yield files
    for new in set(files.iterdir()) - before:
        if new.is_dir():
            for file in new.iterdir():
                file.unlink()
            new.rmdir()
        else:
            new.unlink()


@pytest.fixture
def slowscale(folder, monkeypatch, capsys):
    """Run the command in this process; return its exit code and what it printed to stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["slowscale", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


def edit(folder, old, new, plan=PLAN):
    assert old in plan
    (folder / "plan.toml").write_text(plan.replace(old, new), encoding="utf-8")


def check_report(found, where, way, code):
    """A mistake is reported in few lines, with the place and the way out, and not as a bug."""
    ended, _, text = found
    assert ended == code, text
    assert where in text
    assert way in text
    assert "Traceback" not in text
    assert "bug in slowscale" not in text
    assert len(text.splitlines()) <= MOST_LINES


@pytest.mark.parametrize(("old", "new", "where", "way", "code"), PLANS, ids=[row[1][:40] for row in PLANS])
def test_a_mistake_in_a_plan(folder, slowscale, old, new, where, way, code):
    edit(folder, old, new)
    check_report(slowscale("check", "plan.toml"), where, way, code)
    assert not (folder / "farms.ledger").exists()


@pytest.mark.parametrize(("typed", "where", "way", "code"), COMMANDS, ids=[row[0][:40] for row in COMMANDS])
def test_a_mistake_in_a_command(slowscale, typed, where, way, code):
    check_report(slowscale(*shlex.split(typed)), where, way, code)


@pytest.mark.parametrize(("file", "where", "way", "code"), DATA, ids=[row[0] for row in DATA])
def test_a_mistake_in_the_data(folder, slowscale, file, where, way, code):
    edit(folder, '"farms.csv"', f'"{file}"', PLAN.replace(', opened = "date"', ""))
    check_report(slowscale("release", "plan.toml", "--yes"), where, way, code)


@pytest.fixture(scope="module")
def names():
    """What the calls name: a table, a session on it, a mechanism, keys and a release."""
    opened = pd.to_datetime(["2020-01-01", "2020-02-01"])
    farms = pd.DataFrame({"state": ["IA", "TX"], "cattle": [120, 4000], "opened": opened})
    session, mechanism = ss.Session(farms), ss.Gaussian(sigma=5)
    keys = ss.Keys.from_frame({"state": ["IA", "TX"]})
    released = session.sum({"cattle": mechanism}, keys)
    counties = pd.DataFrame({"county": [1003, 48001], "cattle": [120, 4000]})
    codes = ss.Keys.from_frame({"county": ["01003", "48001"]})
    shared = {"ss": ss, "farms": farms, "s": session, "G": mechanism, "K": keys, "r": released}
    return shared | {"counties": counties, "codes": codes}


@pytest.mark.parametrize(("call", "kind", "subject", "code", "way"), PYTHON, ids=[row[0][:40] for row in PYTHON])
def test_a_mistake_in_python(folder, names, call, kind, subject, code, way):
    with pytest.raises(kind) as caught:
        eval(call, names)
    error = caught.value
    assert type(error) is kind
    assert (error.subject.split(" '/")[0], error.code) == (subject, code)
    assert way in f"{error.remedy} {error.allowed} {error.problem}"


@pytest.mark.parametrize(("name", "meant"), [("Gausian", "Gaussian"), ("laplace", "Laplace"), ("session", "Session")])
def test_a_misspelled_name_in_python(name, meant):
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(ss, name)


@pytest.mark.parametrize("call", ["ss.Gaussian()", "ss.Gaussian.calibrate(75)", "ss.advise()", "ss.Session(legder=1)"])
def test_arguments_that_python_itself_refuses(names, call):
    with pytest.raises(TypeError, match="argument"):
        eval(call, names)


NO_LEDGER = "There is no ledger: nothing is recorded, and losses of repeated releases are not added up."
LEDGER_PART = PLAN[PLAN.index("[ledger]") : PLAN.index("[release]")]


def test_a_plan_without_a_ledger_says_so(folder, slowscale):
    edit(folder, LEDGER_PART, "")
    for overwrite in ((), ("--overwrite",)):
        code, out, _ = slowscale("check", "plan.toml", *overwrite)
        assert code == 0
        assert NO_LEDGER in out
        assert slowscale("release", "plan.toml", "--yes", *overwrite)[0] == 0


def test_a_release_without_a_ledger_says_so_before_it_asks(folder, slowscale, monkeypatch):
    asked = []
    monkeypatch.setattr("slowscale.cli.plans.check_terminal", lambda action: None)
    monkeypatch.setattr("slowscale.cli.plans.confirm", lambda question, declined: asked.append(question) or sys.exit(6))
    edit(folder, LEDGER_PART, "")
    code, out, _ = slowscale("release", "plan.toml")
    assert (code, len(asked)) == (6, 1)
    assert NO_LEDGER in out
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert NO_LEDGER not in slowscale("release", "plan.toml")[1]


def test_outputs_that_a_check_may_replace(folder, slowscale):
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    assert "cells.csv exists, and will be replaced." in slowscale("check", "plan.toml", "--overwrite")[1]
    assert "cells.csv exists: the release needs --overwrite." in slowscale("check", "plan.toml")[1]


def test_shares_of_a_roll_up(folder, slowscale):
    plan = PLAN.replace(LEDGER_PART, "").replace(GAUSSIAN, SUMS + 'mechanism = "log"\nsigma = 0.1\na = 10')
    edit(folder, "[report]", '[tables.total]\nrollup = "cells"\n\n[report]', plan)
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    found = slowscale("share", "published", "--table", "total")
    check_report(
        found, "table 'total' is a roll-up of transformed sums", "name the table with the totals (--of-table)", 2
    )


def test_a_release_that_a_spreadsheet_program_saved(folder, slowscale):
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    table = folder / "published" / "cells.csv"
    table.write_text(table.read_text().replace('"', ""))
    found = slowscale("share", "published/cells.csv")
    check_report(
        found, "was written with another content of the file", "a spreadsheet program may have saved it again", 3
    )


def test_a_release_prints_losses_in_place_of_a_curve(folder, slowscale):
    noise = 'mechanism = "arsinh-normal"\nscale = 500\nshape = 2'
    edit(folder, GAUSSIAN, SUMS + noise, PLAN.replace(LEDGER_PART, ""))
    out = slowscale("release", "plan.toml", "--yes")[1]
    assert "tight(" not in out
    assert ": largest farm" in out


def test_the_workbench_says_that_it_is_stopped(slowscale, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("slowscale.workbench.server.run", stop)
    code, _, err = slowscale("serve", "plan.toml")
    assert code == 130
    assert "the workbench is stopped: what was charged stays charged" in err


def test_the_loss_is_printed_once_for_one_column(folder, slowscale):
    assert slowscale("check", "plan.toml")[1].count("a record's loss (PRzCDP) by its size") == 0


@pytest.mark.parametrize("file", ["header.csv", "lower.csv"])
def test_labels_that_no_record_has_are_reported_with_what_to_do(folder, slowscale, file):
    edit(folder, '"farms.csv"', f'"{file}"', PLAN.replace(', opened = "date"', ""))
    code, _, err = slowscale("release", "plan.toml", "--yes")
    assert code == 0
    assert "no record has any of the keys" in err
    assert "it was charged" in err
    assert "slowscale inspect" in err


def test_an_exhausted_cap_says_what_is_left_to_do(folder, slowscale):
    for _ in range(3):
        assert slowscale("release", "plan.toml", "--yes", "--overwrite")[0] == 0
    found = slowscale("release", "plan.toml", "--yes", "--overwrite")
    check_report(found, "line 9, ledger.caps.cattle", "slowscale ledger set-cap", 4)


def test_a_ledger_of_another_data_set(folder, slowscale):
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    edit(folder, 'name = "farms"', 'name = "ranches"')
    check_report(
        slowscale("check", "plan.toml", "--overwrite"), "line 7, ledger.path", "use the ledger of 'ranches'", 5
    )


def test_a_ledger_that_was_moved_away(folder, slowscale):
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    (folder / "farms.ledger").rename(folder / "moved.ledger")
    for command in (("check",), ("release", "--yes")):
        check_report(slowscale(*command, "plan.toml", "--overwrite"), "line 7, ledger.path", "put that ledger back", 5)
    edit(folder, 'folder = "published"', 'folder = "published-2"')
    code, _, err = slowscale("release", "plan.toml", "--yes")
    assert code == 0
    assert "The ledger farms.ledger does not exist: the release creates it." in err  # a new one is not silent
    (folder / "farms.ledger").unlink()  # another ledger of the data set
    assert slowscale("release", "plan.toml", "--yes", "--overwrite")[0] == 5
    (folder / "moved.ledger").rename(folder / "farms.ledger")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    code, _, err = slowscale("release", "plan.toml", "--yes", "--overwrite")
    assert (code, err) == (0, "")


def test_codes_that_a_spreadsheet_program_saved(folder, slowscale):
    (folder / "counties.csv").write_text("county\n01003\n48001\n")
    (folder / "saved.csv").write_text("county,cattle\n1003,5\n48001,7\n")
    plan = PLAN.replace('file = "cells.csv", by = ["state"]', 'file = "counties.csv", by = ["county"]')
    edit(folder, FILE, 'path = "saved.csv"', plan.replace(', opened = "date"', ""))
    note = "Some keys of county start with 0, and spreadsheet programs drop such zeros"
    assert note in slowscale("check", "plan.toml")[1]
    (folder / "counties.csv").write_text("county\n10030\n48001\n")
    assert note not in slowscale("check", "plan.toml")[1]


def test_a_folder_of_files_of_different_columns(folder, slowscale):
    (folder / "mixed").mkdir()
    for name in ("farms", "firms"):
        pd.DataFrame({name: [1, 2]}).to_parquet(folder / "mixed" / f"{name}.parquet")
    found = slowscale("init", "mixed", "new.toml")
    files = "mixed/farms.parquet, mixed/firms.parquet"
    check_report(found, "must have the same columns", f"name the files that belong together: {files}", 2)


def test_a_release_without_a_ledger_says_so_when_it_is_printed(names, folder):
    assert "Charged to no ledger" in repr(names["r"])
    charged = ss.Session(names["farms"], "new.ledger").sum({"cattle": names["G"]})
    assert "Charged to no ledger" not in repr(charged)


def test_an_output_that_exists(folder, slowscale):
    assert slowscale("release", "plan.toml", "--yes")[0] == 0
    found = slowscale("release", "plan.toml", "--yes")
    check_report(found, "cells.csv already exists", "--overwrite", 2)


def test_negative_values_by_a_logarithm(folder, slowscale):
    plan = PLAN.replace(', opened = "date"', "").replace('"farms.csv"', '"negative.csv"').replace(LEDGER_PART, "")
    edit(folder, GAUSSIAN, SUMS + 'mechanism = "log"\nsigma = 0.1\na = 10', plan)
    check_report(slowscale("release", "plan.toml", "--yes"), "column 'cattle'", 'negatives = "zero"', 3)


@pytest.mark.parametrize(
    ("file", "csv", "code"),
    [
        ("semicolon.csv", '{ delimiter = ";" }', 0),
        ("decimal.csv", '{ delimiter = ";", decimal = "," }', 0),
        ("decimal.csv", '{ delimiter = ";" }', 3),
    ],
)
def test_files_of_another_country(folder, slowscale, file, csv, code):
    plan = PLAN.replace(TYPES, f'types = {{ cattle = "float64" }}\ncsv = {csv}')
    edit(folder, '"farms.csv"', f'"{file}"', plan)
    ended, _, err = slowscale("release", "plan.toml", "--yes")
    assert ended == code, err
    assert code == 0 or "values that are not float64" in err


def test_american_dates_match_no_key_until_they_are_declared(folder, slowscale):
    plan = PLAN.replace(KEYS, "keys = { cross = { opened = [2020-01-31] } }")
    edit(folder, FILE, 'path = "american.csv"', plan)
    assert "no record has any of the keys" in slowscale("release", "plan.toml", "--yes")[2]
    edit(folder, FILE, 'path = "american.csv"\ncsv = { dates = "%m/%d/%Y" }', plan)
    assert slowscale("release", "plan.toml", "--yes", "--overwrite")[2] == ""


@pytest.mark.parametrize(
    ("module", "old", "new", "remedy"),
    [
        ("xlsxwriter", "[output]", '[publication]\ntitle = "x"\nbasic = ["t.xlsx"]\n\n[output]', "[excel]"),
        ("altair", 'formats = ["csv"]', 'report = "report.html"', "pip install"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_charged(
    folder, slowscale, monkeypatch, module, old, new, remedy
):
    monkeypatch.setitem(sys.modules, module, None)
    edit(folder, old, new)
    check_report(slowscale("release", "plan.toml", "--yes"), "needs", remedy, 3)
    assert not (folder / "farms.ledger").exists()


@pytest.mark.parametrize(
    ("largest", "names"),
    [
        ({}, ["p10", "p50", "p90"]),
        ({"cattle": 4000}, ["p10", "p50", "p90", "largest allowed"]),
        ({"cattle": 0.5}, ["p10", "p50", "p90"]),  # below the lowest size of the grid
    ],
)
def test_the_command_that_quantiles_print_runs_when_it_is_pasted(slowscale, monkeypatch, largest, names):
    ss.Ledger("q.ledger", {"*": ss.Gaussian(sigma=0.1).policy}, largest=largest)
    options = ("--loss", "1", "--grid", "1,10,100", "--ledger", "q.ledger", "--yes")
    code, out, _ = slowscale("quantiles", "farms.csv", "--column", "cattle", *options)
    assert code == 0
    advised = []

    def advise(*asked, advise=ss.advise, **wanted):
        advised.append(advise(*asked, **wanted))
        sys.exit()  # what is printed takes longer

    monkeypatch.setattr(ss, "advise", advise)
    words = shlex.split(out[out.index("slowscale advise") :])
    assert slowscale(*words[1:])[0] == 0
    assert list(advised[0].records) == names


def test_help_lists_every_command_under_its_heading_and_no_flag_takes_a_value(slowscale):
    from typer.main import get_command

    from slowscale.cli.app import app

    _, out, _ = slowscale("--help")
    headings = ["Publish:", "Ledger:", "Signatures:", "Tools:"]
    places = [out.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    commands = get_command(app).commands
    for name in commands:
        assert f"\n  {name} " in out
        assert "<bool>" not in slowscale(name, "--help")[1]
    tools = out[places[-1] :]
    assert all(f"\n  {name} " in tools for name in ("study", "schema"))
    assert "Commands:" not in out


def test_a_wrong_use_names_the_help_of_its_command(slowscale):
    for typed in ("release", "compare --std x --at 3", "release plan.toml --yes=1", "ledger show", "nosuch"):
        command = {"compare --std x --at 3": "compare", "release plan.toml --yes=1": "release", "nosuch": ""}
        place = f"slowscale {command.get(typed, typed)}".strip()
        assert f"(see {place} --help)" in slowscale(*typed.split())[2]
