"""The entries of a ledger: frozen values, and the JSON text that they are written as.

The text of an entry is what the chain of hashes covers. An entry that was read keeps it, since earlier versions wrote
some parts in another way: `to_dict` returns what is in the file, not how this version would write it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from slowscale.accounting.charge import Charge, Functions
from slowscale.errors import LedgerError, ParameterTypeError, SlowscaleError
from slowscale.policy import Policy


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry: when it was made, and the text that a file has of it, where it was read."""

    kind: ClassVar[str]
    time: str = field(default_factory=_now)
    text: str | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values, as it is in the file."""
        if self.text is not None:
            found: dict[str, Any] = json.loads(self.text)
            return found
        return {"time": self.time, "kind": self.kind, **self._content()}

    def _content(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], functions: Functions | None = None) -> "Entry":
        """Return the entry that `to_dict` described."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Created(Entry):
    """The ledger was made, with these caps and for this data set."""

    kind: ClassVar[str] = "created"
    caps: Mapping[str, Policy]
    dataset: str | None = None

    def _content(self) -> dict[str, Any]:
        caps = {name: cap.to_dict() for name, cap in self.caps.items()}
        return {"caps": caps} if self.dataset is None else {"caps": caps, "dataset": self.dataset}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], functions: Functions | None = None) -> "Created":
        """Return the entry that `to_dict` described."""
        caps = {name: Policy.from_dict(cap, functions) for name, cap in entry["caps"].items()}
        return cls(time=entry["time"], caps=caps, dataset=entry.get("dataset"))


@dataclass(frozen=True, kw_only=True)
class CapRaised(Entry):
    """A column got another cap."""

    kind: ClassVar[str] = "cap"
    column: str
    cap: Policy
    reason: str

    def _content(self) -> dict[str, Any]:
        return {"column": self.column, "cap": self.cap.to_dict(), "reason": self.reason}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], functions: Functions | None = None) -> "CapRaised":
        """Return the entry that `to_dict` described."""
        cap = Policy.from_dict(entry["cap"], functions)
        return cls(time=entry["time"], column=entry["column"], cap=cap, reason=entry["reason"])


@dataclass(frozen=True, kw_only=True)
class Charged(Entry):
    """A release was charged."""

    kind: ClassVar[str] = "charge"
    charge: Charge

    def _content(self) -> dict[str, Any]:
        return {"facts": self.charge.written, **_part(self.charge)}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], functions: Functions | None = None) -> "Charged":
        """Return the entry that `to_dict` described."""
        part = entry["by"], tuple(entry["labels"]), entry.get("label_kind")
        return cls(time=entry["time"], charge=Charge.from_facts(entry["facts"], *part, functions))


@dataclass(frozen=True, kw_only=True)
class Attempted(Entry):
    """A release was refused or failed: it cost nothing.

    Attributes
    ----------
    asked
        What was asked: a charge, or whatever is known of the release's facts where there was none yet.
    error, message
        The type of the error, and its text.
    """

    kind: ClassVar[str] = "attempt"
    asked: Charge | Mapping[str, Any]
    error: str
    message: str

    def _content(self) -> dict[str, Any]:
        reason = {"type": self.error, "message": self.message}
        if not isinstance(self.asked, Charge):
            return {"facts": dict(self.asked), "by": None, "labels": [], "label_kind": None, "error": reason}
        # Also where the policy cannot be written down, which is an error of its own.
        facts = self.asked.written if self.asked.facts is None else dict(self.asked.facts)
        return {"facts": facts, **_part(self.asked), "error": reason}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], functions: Functions | None = None) -> "Attempted":
        """Return the entry that `to_dict` described; its facts only, since what was not charged need not be read."""
        error = entry["error"]
        return cls(time=entry["time"], asked=entry["facts"], error=error["type"], message=error["message"])


ENTRY_KINDS: dict[str, type[Entry]] = {kind.kind: kind for kind in (Created, CapRaised, Charged, Attempted)}


def read_entry(text: str, functions: Functions | None) -> Entry:
    """Return the entry that a ledger has as this text, or raise."""
    try:
        entry: dict[str, Any] = json.loads(text)
        kind = entry["kind"]
        if kind not in ENTRY_KINDS:
            raise LedgerError(f"an entry of an unknown kind, {kind!r}: a newer version of slowscale wrote it; update")
        return replace(ENTRY_KINDS[kind].from_dict(entry, functions), text=text)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"an entry that makes no sense: {type(error).__name__}") from error


def written(entry: Entry, functions: Functions | None) -> Entry:
    """Return a new entry as it will be read back, with its text."""
    try:
        text = json.dumps(entry.to_dict(), sort_keys=True)
    except (TypeError, ValueError) as error:
        if isinstance(error, SlowscaleError):
            raise
        raise ParameterTypeError(f"facts must be what JSON can hold: {error}") from None
    return read_entry(text, functions)


def text_of(entry: Entry) -> str:
    """Return the text of an entry that was read or `written`."""
    assert entry.text is not None
    return entry.text


def cap_changes(entries: Sequence[Entry]) -> Iterator[tuple[CapRaised, Policy | None]]:
    """Yield the entries that changed a cap, each with the cap before."""
    caps: dict[str, Policy] = {}
    for entry in entries:
        if isinstance(entry, Created):
            caps = dict(entry.caps)
        elif isinstance(entry, CapRaised):
            yield entry, caps.get(entry.column)
            caps[entry.column] = entry.cap


def _part(charge: Charge) -> dict[str, Any]:
    return {"by": charge.by, "labels": list(charge.labels), "label_kind": charge.kind}
