"""A release that was made and charged is finished: missing files are made from the drawn tables that are on disk.

Nothing here reads records, draws noise or charges the ledger. A drawn table that is not on disk is lost.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.accounting import Ledger, Spent
from slowscale.accounting.composition import total_of
from slowscale.core.errors import EngineError, LedgerError, ParameterError, SignatureError, SlowscaleError
from slowscale.plan.models import Plan
from slowscale.plan.outputs import signing_key
from slowscale.plan.query import hierarchy_of
from slowscale.plan.writing import Output, Written, reader_outputs, table_files, table_outputs
from slowscale.release.facts import Facts

if TYPE_CHECKING:
    from slowscale.publish.minisign import PublicKey
    from slowscale.release import Release
    from slowscale.release.table import ReleasedSums, ReleasedTable


def finish_plan(plan: Plan, overwrite: bool = False) -> "tuple[Release, list[Path]]":
    """Write the missing files of a release that was made by this plan; return the release and the files.

    If a drawn table is lost, or a file cannot be written, an `IncompleteError` follows once all others are written.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether to write all files again, except one of each drawn table, from which the others are made. If the drawn
        tables on disk are of several releases, the newest one is finished, and only older ones are replaced.
    """
    from slowscale.accounting.record import read_policies
    from slowscale.release import Release

    key = signing_key(plan)
    found_files = _newest(plan, _drawn_files(plan))
    drawn = {name: _read(plan, name, path) for name, path in found_files.items()}
    sources = list(found_files.values())
    facts = next(iter(drawn.values())).whole
    lost = [name for name in plan.drawn if name not in drawn]
    spent = _spent(plan, facts)
    tables = _with_derived(plan, drawn)
    found: Release | None = None
    if not lost:
        policies = read_policies({"policy": facts.policy, "pure_policy": facts.pure_policy})
        found = Release.of(tables, facts.with_(table=None), *policies)
    publication = None if plan.publication is None else plan.publication.build()
    outputs = list(table_outputs(plan, tables))
    if found is not None:
        outputs += reader_outputs(plan, found, lambda: spent, publication)
    kept = [output for output in outputs if output.files[0] in sources or (_exists(output) and not overwrite)]
    _check_kept(plan, kept, list(tables), facts.id)
    if key is not None:
        _verify_sources(sources, key.public, overwrite)
    written = Written()
    for output in outputs:
        if output not in kept:
            written.attempt(output, True)  # what is there of such files is made again from the same tables
    written.sign(plan, key, True, [file for output in kept for file in output.files])
    written.raise_problems(plan, lost)
    assert found is not None
    return found, written.files


def _exists(output: Output) -> bool:
    return any(os.path.lexists(file) for file in output.files)


def _drawn_files(plan: Plan) -> dict[str, dict[Path, Facts]]:
    """Return the files of each drawn table that are on disk, with the facts in them; raise if there is none."""
    files = {name: paths for name, paths in table_files(plan).items() if name in plan.drawn}
    found = {name: {path: _read_facts(path) for path in paths if path.exists()} for name, paths in files.items()}
    if not any(found.values()):
        places = ", ".join(str(path) for paths in files.values() for path in paths)
        raise ParameterError(
            f"--finish makes files from the drawn tables that are on disk, but there is none at {places}. A drawn "
            "table that is missing is lost: another release, without --finish, is another charge"
        )
    return found


def _newest(plan: Plan, files: Mapping[str, Mapping[Path, Facts]]) -> dict[str, Path]:
    """Return a file of each drawn table of the newest release on disk: an older one must never replace it."""
    paths = {path: facts for found in files.values() for path, facts in found.items()}
    by_id = {facts.id: (path, facts) for path, facts in paths.items()}
    ranks: dict[str, tuple[int, str]] = {}
    for one, (path, facts) in by_id.items():
        if plan.ledger is not None and len(by_id) > 1:
            try:
                _spent(plan, facts)
            except LedgerError as error:
                raise LedgerError(f"{path} is of another release than other drawn tables, and {error}") from None
        ranks[one] = (facts.ledger.entry if plan.ledger is not None and facts.ledger else 0, facts.created)
    newest = max(ranks, key=lambda one: ranks[one])
    if list(ranks.values()).count(ranks[newest]) > 1:
        raise EngineError(
            f"the drawn tables {', '.join(map(str, paths))} are of several releases, and they do not tell which one is "
            "the newest: keep those of one release only"
        )
    found = {}
    for name, candidates in files.items():
        of_newest = [path for path, facts in candidates.items() if facts.id == newest]
        if of_newest:
            found[name] = next((path for path in of_newest if _is_readable(path)), of_newest[0])
    return found


def _read_facts(path: Path) -> Facts:
    """Return the facts of a table's file, also if the numbers beside them are not those of the facts."""
    from slowscale.release.reading import read_file_facts

    return read_file_facts(path)


def _is_readable(path: Path) -> bool:
    from slowscale.release import read_release

    try:
        read_release(path)
    except SlowscaleError:
        return False
    return True


def _read(plan: Plan, name: str, path: Path) -> "ReleasedSums":
    """Return a drawn table that is on disk, or raise unless this plan made it."""
    from slowscale.release import read_release

    release, single = read_release(path), plan.drawn[name]
    table: ReleasedSums = next(iter(release.tables.values()))  # type: ignore[assignment]
    keys, facts = single.keys, table.facts
    by = () if keys is None else tuple(keys.cross if keys.cross is not None else keys.by or ())
    here = {
        "mechanisms": table.mechanisms,
        "keys": facts.by,
        "protect": table.whole.protect,
        "name of the data set": table.whole.dataset,
        "accounting": table.whole.accounting,
        "filter": facts.where,
        "tables": (table.name, tuple(table.whole.tables)),
    }
    there = {
        "mechanisms": single.mechanisms,
        "keys": by or facts.by,
        "protect": plan.data.protect,
        "name of the data set": plan.data.name,
        "accounting": plan.accounting,
        "filter": plan.data.where,
        "tables": (name, tuple(plan.table_names or plan.drawn)),
    }
    different = [what for what in here if here[what] != there[what]]
    if facts.rollup or different:
        raise ParameterError(
            f"{path} was not made by this plan: the {', '.join(different) or 'table'} differ. Finish a release with "
            "the plan that made it"
        )
    return table


def _spent(plan: Plan, facts: Facts) -> Spent | None:
    """Return what records have lost by all releases up to this one, or None without a ledger; raise if it is not there.

    The ledger is only read.
    """
    if plan.ledger is None:
        return None
    path = Path(plan.ledger.path)
    if not path.exists() or not facts.ledger:
        raise LedgerError(
            f"the release {facts.id} is not in the ledger {path}: finish it with the ledger that it was charged to"
        )
    with Ledger(path) as ledger:
        if problems := ledger.verify(facts.ledger.to_dict()):
            raise LedgerError(
                f"the release {facts.id} was not charged to the ledger {path}, or the ledger was changed: {problems[0]}"
            )
        history = ledger.history()[: facts.ledger.entry]
        charges = [entry for entry in history if entry["kind"] == "charge"]
        return total_of(ledger.account.charges[: len(charges)])


def _verify_sources(sources: Sequence[Path], public: "PublicKey", overwrite: bool) -> None:
    """Raise unless the drawn tables match their signatures, if there are any: the new files are signed with them.

    Other signed files of their folders must match too, unless all of them are made again.
    """
    from slowscale.publish.signing import SIGNATURE, verify

    facts = [path.with_name(f"{path.name}.json") for path in sources if path.suffix.lower() == ".csv"]
    for path in [*sources, *facts]:
        if not path.with_name(SIGNATURE).exists():
            continue
        try:
            verify(path, public)
        except SignatureError as error:
            if not overwrite or error.file in (None, path.name):
                raise


def _with_derived(plan: Plan, drawn: "Mapping[str, ReleasedSums]") -> "dict[str, ReleasedTable]":
    """Return the drawn tables, and all tables that can be derived from them, as they were released."""
    from slowscale.release.rollup import roll_up

    whole = next(iter(drawn.values())).whole
    if any(table.whole.id != whole.id for table in drawn.values()):
        raise EngineError("the drawn tables on disk are of several releases: keep those of one release only")
    kinds = {key: kind for one in whole.tables.values() if one.keys for key, kind in one.keys.columns.items()}
    hierarchies = [hierarchy_of(part, kinds) for part in plan.hierarchy]
    found: dict[str, ReleasedTable] = {}
    for name, facts in whole.tables.items():
        source = name if facts.rollup is None else facts.rollup.of
        if source not in drawn:
            continue
        if facts.rollup is None:
            found[name] = drawn[name]
            continue
        used = [one for one in hierarchies if set(one.levels) & set(facts.by)]
        rolled = roll_up(drawn[source], facts.by, used or None, name)
        if len(rolled) != facts.rows:
            raise ParameterError(
                f"the table {name!r} had {facts.rows:,} rows when it was released, and has {len(rolled):,} now: use "
                "the hierarchies of the release"
            )
        found[name] = rolled.with_facts(rolled.facts.with_(of=facts.of))
    return found


def _check_kept(plan: Plan, kept: Sequence[Output], names: Sequence[str], release: str) -> None:
    """Raise if files that are there cannot be shown to belong to this release.

    Parameters
    ----------
    plan, kept
        The plan, and the files that are there.
    names, release
        The tables, and the identifier of the release.
    """
    from slowscale.publish.origin import published_releases

    tables = {path: name for name, paths in table_files(plan).items() for path in paths}
    for output in kept:
        first = output.files[0]
        if missing := [file for file in output.files if not os.path.lexists(file)]:
            there = next(file for file in output.files if file not in missing)
            raise ParameterError(f"{there} is there without {missing[0]}; pass --overwrite to write both again")
        if first in tables:
            of_this = _is_readable(first)
            if of_this:
                facts = _read_facts(first)
                of_this = (facts.id, facts.table) == (release, tables[first])
        elif plan.output.report is not None and first == Path(plan.output.report):
            of_this = release in first.read_text(encoding="utf-8", errors="replace")
        else:
            of_this = published_releases(output.files) == [(release, name) for name in names]
        if not of_this:
            raise ParameterError(f"{first} is of another release; pass --overwrite to write it again")
