"""Write docs/plan-keys.md from the schema of plans, and docs/commands.md from the help of the commands.

Run as `python docs/reference_pages.py`.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from slowscale.cli.app import app

DOCS = Path(__file__).parent
NOTE = "<!-- Written by `python docs/reference_pages.py`. -->\n"
# The sections of a plan, with the definitions of the schema that they have.
SECTIONS = {
    "[data]": "DataPlan",
    "[ledger]": "LedgerPlan",
    "[ledger.caps.COLUMN]": "CapPlan",
    "[release]": "ReleasePlan",
    "[tables.NAME]: sums": "SumsPlan",
    "[tables.NAME.keys]": "KeysPlan",
    "[tables.NAME.sums.COLUMN]": "SumPlan",
    "[tables.NAME]: quantiles": "QuantilesPlan",
    "[tables.NAME]: a roll-up": "RollupPlan",
    "[[hierarchies]]": "HierarchyPlan",
    "[report]": "ReportPlan",
    "[publication]": "PublicationPlan",
    "[publication.columns]": "ColumnLabelPlan",
    "[output]": "OutputPlan",
    "A mechanism": "MechanismPlan",
    "The noise of a transformation": "NoisePlan",
    "The format of CSV files": "CsvPlan",
}
WITH_MECHANISM = ("CapPlan", "SumPlan")
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
CELL = str.maketrans({"|": r"\|", "<": "&lt;", "\n": " "})


def kind(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return "a table"
    if "anyOf" in field or "oneOf" in field:
        kinds = [kind(one) for one in field.get("anyOf", field.get("oneOf")) if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"a list ({kind(field['items'])})"
    if field["type"] == "object":
        return "a table"
    return "a date" if field.get("format") == "date" else TYPES[field["type"]]


def fill(text: str) -> str:
    """Return a paragraph in lines as long as in the other pages."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def row(name: str, field: dict[str, Any], required: bool) -> str:
    """Return the row of a key."""
    value = field.get("default")
    default = "required" if required else "" if value in (None, [], {}) else f"`{json.dumps(value)}`"
    return f"| `{name}` | {kind(field)} | {default} | {field.get('description', '').translate(CELL)} |"


def plan_keys(schema: dict[str, Any]) -> str:
    """Return the page on the keys of plans."""
    found = schema["$defs"]
    assert set(SECTIONS.values()) == set(found), "SECTIONS must have all definitions of the schema"
    lines = [
        NOTE + "# Plan keys",
        fill(
            "All keys of a plan, a TOML file. [From the command line](howto/command-line.md) shows whole plans, and "
            "[plan.schema.json](plan.schema.json) is the same for editors. Words in capitals are names that you choose."
        ),
        "| section | what it says |\n|---|---|\n"
        + "\n".join(
            f"| `[{name}]` | {field['description'].translate(CELL)} |"
            for name, field in (
                (name, {**found.get(ref(field), {}), **field}) for name, field in schema["properties"].items()
            )
        ),
    ]
    mechanism = found["MechanismPlan"]["properties"]
    for title, name in SECTIONS.items():
        heading = f"`{title.partition(']:')[0]}]`{title.partition(']')[2]}" if "]:" in title else title
        heading = f"`{heading}`" if heading.startswith("[") else heading
        part, required = found[name], found[name].get("required", ())
        fields = {
            key: field
            for key, field in part["properties"].items()
            if name not in WITH_MECHANISM or key not in mechanism
        }
        rows = [row(key, field, key in required) for key, field in fields.items()]
        more = " It also takes the keys of [a mechanism](#a-mechanism)." if name in WITH_MECHANISM else ""
        table = "| key | value | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows)
        lines += [f"## {heading}\n" + fill(part["description"] + more), table]
    return "\n\n".join(lines) + "\n"


def ref(field: dict[str, Any]) -> str:
    """Return the name of the definition that a field refers to, if any."""
    choices = [field, *field.get("anyOf", ())]
    return next((one["$ref"].rpartition("/")[2] for one in choices if "$ref" in one), "")


def usage(*command: str) -> str:
    """Return the help of a command, at most 80 characters wide."""
    found = CliRunner().invoke(app, [*command, "--help"], prog_name="slowscale", env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.output
    return "\n".join(line.rstrip() for line in found.output.strip().splitlines())


def commands() -> str:
    """Return the page on the commands."""
    lines = [
        NOTE + "# Commands",
        fill(
            "The help of all commands, as `slowscale COMMAND --help` prints it. [From the command "
            "line](howto/command-line.md) shows how they work together, and what exit codes mean."
        ),
    ]
    for name, command in typer.main.get_command(app).commands.items():
        lines.append(f"## {name}")
        for one in [(name, inner) for inner in getattr(command, "commands", ())] or [(name,)]:
            lines.append(f"```text\n{usage(*one)}\n```")
    return "\n\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Return the text of each page."""
    schema = json.loads((DOCS / "plan.schema.json").read_text(encoding="utf-8"))
    return {"plan-keys.md": plan_keys(schema), "commands.md": commands()}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
