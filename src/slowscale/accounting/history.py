"""The history of a ledger in words."""

from collections.abc import Mapping
from typing import Any

from slowscale.mechanisms.calibration import accounting_in_words
from slowscale.policy import Policy


def entry_in_words(entry: Mapping[str, Any]) -> str:
    """Return an entry of a ledger's history as text."""
    try:
        return _in_words(entry)
    except (KeyError, TypeError, ValueError, AttributeError):  # facts are whatever was charged with them
        return f"an entry of the kind {entry['kind']}, which this version of slowscale cannot describe"


def _in_words(entry: Mapping[str, Any]) -> str:
    if entry["kind"] == "charge":
        facts = entry["facts"]
        drawn = [table for table in facts.get("tables", {}).values() if table.get("rollup") is None]
        columns = [f"{name} by {column['described']}" for table in drawn for name, column in table["columns"].items()]
        for quantiles in [table["quantiles"] for table in drawn if "quantiles" in table]:
            columns.append(f"the quantiles {', '.join(map(str, quantiles['at']))} of {quantiles['column']}")
        words = f"release {facts.get('id', '')}: {', '.join(columns) or facts.get('formula', '')}"
        if len(facts.get("tables", {})) > 1:
            words = f"{words}, in the tables {', '.join(facts['tables'])}"
        accounting = facts.get("accounting")  # a charge that no session made has none
        return words if accounting is None else f"{words}; {accounting_in_words(accounting)}"
    if entry["kind"] == "cap":
        cap = Policy.from_dict(entry["cap"])
        return f"the cap on {entry['column']} was changed to {cap}: {entry['reason']}"
    if entry["kind"] == "attempt":
        return f"refused or failed: {entry['error']['type']}: {entry['error']['message']}"
    dataset = f" for the data set {entry['dataset']}" if "dataset" in entry else ""
    caps = f"with caps on {', '.join(entry['caps'])}" if entry["caps"] else "without caps"
    return f"the ledger was made{dataset}, {caps}"
