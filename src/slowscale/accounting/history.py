"""The history of a ledger in words."""

from collections.abc import Mapping
from typing import Any

from slowscale.policy import Policy


def accounting_of(facts: Mapping[str, Any]) -> str | None:
    """Return which policies a release was charged, or None if that is not known, as for a charge without columns.

    Earlier versions charged closed forms only, and did not write it.
    """
    found: str | None = facts.get("accounting", "closed" if "columns" in facts else None)
    return found


def entry_in_words(entry: Mapping[str, Any]) -> str:
    """Return an entry of a ledger's history as text."""
    if entry["kind"] == "charge":
        facts = entry["facts"]
        columns = ", ".join(f"{name} by {column['described']}" for name, column in facts.get("columns", {}).items())
        if quantiles := facts.get("quantiles"):
            columns = f"the quantiles {', '.join(map(str, quantiles['at']))} of {quantiles['column']}"
        if table_set := facts.get("table_set"):
            tables = table_set["tables"]
            drawn = [name for name, table in tables.items() if table.get("of") is None]
            also = f", and {len(tables) - len(drawn)} derived" if len(tables) > len(drawn) else ""
            columns = f"a set of tables, {', '.join(drawn)} drawn{also}: {facts.get('formula', '')}"
        accounting = accounting_of(facts)
        words = f"release {facts.get('id', '')}: {columns or facts.get('formula', '')}"
        return words if accounting is None else f"{words}; {accounting} accounting"
    if entry["kind"] == "cap":
        cap = Policy.from_dict(entry["cap"])
        return f"the cap on {entry['column']} was changed to {cap}: {entry['reason']}"
    if entry["kind"] == "attempt":
        return f"refused or failed: {entry['error']['type']}: {entry['error']['message']}"
    dataset = f" for the data set {entry['dataset']}" if "dataset" in entry else ""
    caps = f"with caps on {', '.join(entry['caps'])}" if entry["caps"] else "without caps"
    return f"the ledger was made{dataset}, {caps}"
