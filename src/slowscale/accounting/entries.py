"""The entries of a ledger: frozen values, the JSON text in which they are stored, and their description for people.

The hash chain covers the text of an entry, so an entry that was read keeps its text, and `to_dict` returns exactly what
is in the file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from slowscale.accounting.account import Account, check_caps
from slowscale.accounting.charge import Charge
from slowscale.accounting.largest import Value, check_largest, in_words
from slowscale.accounting.record import folded
from slowscale.core.errors import LedgerError, ParameterTypeError, SlowscaleError
from slowscale.core.numbers import format_number
from slowscale.mechanisms.calibration import accounting_in_words
from slowscale.policy import Policy
from slowscale.policy.bounded import BAND, check_band


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry: the time when it was made and, if it was read from a file, its text there."""

    kind: ClassVar[str]
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    text: str | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values, as in the file."""
        if self.text is not None:
            found: dict[str, Any] = json.loads(self.text)
            return found
        return {"time": self.time, "kind": self.kind, **self._content()}

    def _content(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Entry":
        """Return the entry that `to_dict` described."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Created(Entry):
    """The ledger was created, with these caps, this band, these largest values and for this data set."""

    kind: ClassVar[str] = "created"
    caps: Mapping[str, Policy]
    dataset: str | None = None
    band_caps: Mapping[str, Policy] = field(default_factory=dict)
    band: float = BAND
    largest: Mapping[str, Value] = field(default_factory=dict)

    def _content(self) -> dict[str, Any]:
        caps, band_caps = ({name: cap.to_dict() for name, cap in some.items()} for some in (self.caps, self.band_caps))
        found = {"caps": caps, "band_caps": band_caps, "band": self.band, "largest": dict(self.largest)}
        return found if self.dataset is None else {**found, "dataset": self.dataset}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Created":
        """Return the entry that `to_dict` described."""
        caps, band_caps = (
            check_caps({name: Policy.from_dict(cap) for name, cap in entry[kind].items()})
            for kind in ("caps", "band_caps")
        )
        dataset = _text(entry, "dataset") if "dataset" in entry else None
        band, largest = check_band(entry["band"]), check_largest(entry["largest"])
        return cls(
            time=_text(entry, "time"), caps=caps, dataset=dataset, band_caps=band_caps, band=band, largest=largest
        )


@dataclass(frozen=True, kw_only=True)
class CapSet(Entry):
    """The cap on a column was set: one that had a cap, or a further one; on its values within the band if `band`."""

    kind: ClassVar[str] = "cap"
    column: str
    cap: Policy
    reason: str
    band: bool = False

    def _content(self) -> dict[str, Any]:
        return {"column": self.column, "cap": self.cap.to_dict(), "reason": self.reason, "band": self.band}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "CapSet":
        """Return the entry that `to_dict` described."""
        column, reason = _text(entry, "column"), _text(entry, "reason")
        (cap,) = check_caps({column: Policy.from_dict(entry["cap"])}).values()
        if not isinstance(entry["band"], bool):
            raise TypeError("band must be true or false")
        return cls(time=_text(entry, "time"), column=column, cap=cap, reason=reason, band=entry["band"])


@dataclass(frozen=True, kw_only=True)
class LargestSet(Entry):
    """The largest value of a column was set, or removed if it is None."""

    kind: ClassVar[str] = "largest"
    column: str
    value: Value | None
    reason: str

    def _content(self) -> dict[str, Any]:
        return {"column": self.column, "value": self.value, "reason": self.reason}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "LargestSet":
        """Return the entry that `to_dict` described."""
        column, value = _text(entry, "column"), entry["value"]
        if value is not None:
            (value,) = check_largest({column: value}).values()
        return cls(time=_text(entry, "time"), column=column, value=value, reason=_text(entry, "reason"))


@dataclass(frozen=True, kw_only=True)
class Charged(Entry):
    """A release was charged."""

    kind: ClassVar[str] = "charge"
    charge: Charge

    def _content(self) -> dict[str, Any]:
        return {"facts": self.charge.written, **_part(self.charge)}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Charged":
        """Return the entry that `to_dict` described."""
        charge = Charge.from_facts(
            entry["facts"],
            by=entry["by"],
            labels=entry["labels"],
            kind=entry["label_kind"],
            derived=entry.get("derived"),
        )
        return cls(time=_text(entry, "time"), charge=charge)


@dataclass(frozen=True, kw_only=True)
class Attempted(Entry):
    """A release was refused or failed. It cost nothing.

    Attributes
    ----------
    asked
        The charge that was requested or, if there was none yet, the facts of the release that are known.
    error, message
        The type of the error, and its message.
    """

    kind: ClassVar[str] = "attempt"
    asked: Charge | Mapping[str, Any]
    error: str
    message: str

    def _content(self) -> dict[str, Any]:
        reason = {"type": self.error, "message": self.message}
        if not isinstance(self.asked, Charge):
            return {"facts": dict(self.asked), "by": None, "labels": [], "label_kind": None, "error": reason}
        # `written` would raise if the policy cannot be written; the attempt must be recorded even then.
        facts = self.asked.written if self.asked.facts is None else dict(self.asked.facts)
        return {"facts": facts, **_part(self.asked), "error": reason}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Attempted":
        """Return the entry that `to_dict` described, with facts instead of a charge: no policy need be read."""
        error, asked = entry["error"], entry["facts"]
        if not isinstance(asked, Mapping):
            raise TypeError("facts must be a mapping")
        return cls(time=_text(entry, "time"), asked=asked, error=_text(error, "type"), message=_text(error, "message"))


ENTRY_KINDS: dict[str, type[Entry]] = {kind.kind: kind for kind in (Created, CapSet, LargestSet, Charged, Attempted)}


def read_entry(text: str) -> Entry:
    """Return the entry with this text, or raise a `LedgerError`."""
    try:
        entry: dict[str, Any] = json.loads(text)
        kind = entry["kind"]
        if kind not in ENTRY_KINDS:
            raise LedgerError(
                "the ledger",
                f"has an entry of the unknown kind {kind!r}, which a newer version of slowscale wrote",
                code="newer",
                remedy="update slowscale",
            )
        return replace(ENTRY_KINDS[kind].from_dict(entry), text=text)
    except LedgerError:
        raise
    except Exception as error:  # a file can hold anything
        raise LedgerError(
            "the ledger",
            f"has an entry that cannot be read ({type(error).__name__})",
            code="damaged",
            remedy="restore the file from a backup",
        ) from error


def serialized(entry: Entry) -> Entry:
    """Return a new entry with its text, as it will be read back from the file."""
    try:
        text = json.dumps(entry.to_dict(), sort_keys=True)
    except SlowscaleError:
        raise
    except (TypeError, ValueError):
        raise ParameterTypeError("facts", allowed="values that JSON can represent, such as text and numbers") from None
    return read_entry(text)


def cap_changes(entries: Sequence[Entry]) -> Iterator[tuple[CapSet, Policy | None]]:
    """Yield the entries that set a cap, each with the cap that it replaced, or None if the column had none."""
    caps: dict[tuple[str, bool], Policy] = {}
    for entry in entries:
        if isinstance(entry, Created):
            caps = {(folded(name), False): cap for name, cap in entry.caps.items()}
            caps |= {(folded(name), True): cap for name, cap in entry.band_caps.items()}
        elif isinstance(entry, CapSet):
            key = folded(entry.column), entry.band
            yield entry, caps.get(key)
            caps[key] = entry.cap


def apply_entry(account: Account, entry: Entry, first: bool, checked: bool = False) -> None:
    """Apply an entry to the account of the entries before it.

    Parameters
    ----------
    account
        The account.
    entry
        The entry.
    first
        Whether no entry is before it. The first entry creates the ledger, and no other one may: it would undo caps.
    checked
        Whether a charge or a larger largest value is refused if a cap is exceeded. Those in a file were checked when
        they were written.
    """
    if isinstance(entry, Created) != first:
        problem = "was not created by its first entry" if first else "is created again by a later entry"
        raise LedgerError("the ledger", problem, code="damaged", remedy="restore the file from a backup")
    if isinstance(entry, Created):
        account.band, account.largest = entry.band, dict(entry.largest)
        for name, cap in entry.caps.items():
            account.set_cap(name, cap)
        for name, cap in entry.band_caps.items():
            account.set_cap(name, cap, band=True)
    elif isinstance(entry, CapSet):
        if checked and entry.band:  # raises if no band can be stated for an earlier charge
            trial = account.copy()
            trial.set_cap(entry.column, entry.cap, entry.band)
            trial.above_caps(band=True)
        account.set_cap(entry.column, entry.cap, entry.band)
    elif isinstance(entry, LargestSet):
        account.set_largest(entry.column, entry.value, checked)
    elif isinstance(entry, Charged):
        (account.charge if checked else account.record)(entry.charge)


def _text(entry: Mapping[str, Any], name: str) -> str:
    """Return an entry that must be text."""
    found = entry[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} must be text")
    return found


def _part(charge: Charge) -> dict[str, Any]:
    part = {"by": charge.by, "labels": list(charge.labels), "label_kind": charge.kind}
    return {**part, "derived": dict(charge.derived)} if charge.derived else part


def describe_entry(entry: Mapping[str, Any]) -> str:
    """Return an entry of a ledger's history as text."""
    try:
        if entry["kind"] == "cap":
            kind = "band cap" if entry["band"] else "cap"
            return f"the {kind} on {entry['column']} was set to {Policy.from_dict(entry['cap'])}: {entry['reason']}"
        if entry["kind"] == "largest":
            to = "removed" if entry["value"] is None else f"set to {format_number(float(entry['value']))}"
            return f"the largest value of {entry['column']} was {to}: {entry['reason']}"
        if entry["kind"] == "attempt":
            return f"refused or failed: {entry['error']['type']}: {entry['error']['message']}"
        if entry["kind"] == "created":
            dataset = f" for the data set {entry['dataset']}" if "dataset" in entry else ""
            caps = f"with caps on {', '.join(entry['caps'])}" if entry["caps"] else "without caps"
            if entry["band_caps"]:
                caps += f", and with band caps on {', '.join(entry['band_caps'])}"
            if entry["largest"]:
                caps += f", and with the largest values {in_words(entry['largest'])}"
            return f"the ledger was created{dataset}, {caps}"
        facts = entry["facts"]
        tables = facts.get("tables", {})
        drawn = [table for table in tables.values() if table.get("rollup") is None]
        columns = [f"{name} by {column['described']}" for table in drawn for name, column in table["columns"].items()]
        for quantiles in [table["quantiles"] for table in drawn if "quantiles" in table]:
            columns.append(f"the quantiles {', '.join(map(str, quantiles['at']))} of {quantiles['column']}")
        words = f"release {facts.get('id', '')}: {', '.join(columns) or facts.get('formula', '')}"
        if len(tables) > 1:
            words = f"{words}, in the tables {', '.join(tables)}"
        accounting = facts.get("accounting")  # only a session states it
        return words if accounting is None else f"{words}; {accounting_in_words(accounting)}"
    except (KeyError, TypeError, ValueError, AttributeError):  # the facts of a charge can be anything
        return f"an entry of the kind {entry['kind']}, which this version of slowscale cannot describe"
