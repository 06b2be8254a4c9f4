"""Commands about mechanisms: `advise` recommends one, `compare` puts several side by side, `calibrate` solves for a
parameter, `study` repeats the experiments of the paper."""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.cli.shared import (
    CHART,
    Accounting,
    AsJson,
    At,
    Interval,
    Level,
    LossTarget,
    Overwrite,
    RecordSizes,
    Std,
    echo,
    options_of,
    parse_assignment,
    parse_parameters,
    print_json,
    writable_path,
)

if TYPE_CHECKING:
    from slowscale.accounting.sizes import RecordSize


def advise(
    columns: Annotated[
        Path | None,
        typer.Argument(
            metavar="[COLUMNS]",
            help="For several columns: a .toml file with a table for each of them, whose fields are records and the "
            "options of this command, such as [pay] records = { median = 106, largest = 1.55e6 }, interval = 150.",
        ),
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(
            help='Named record sizes, such as "median=268689,largest=39e9". State public knowledge only, never a size '
            "looked up in the records."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="The largest half-width of the interval around a small sum that contains the result with probability "
            "--level."
        ),
    ] = None,
    std: Annotated[
        float | None, typer.Option(help="The largest standard deviation for a small sum, in place of an interval.")
    ] = None,
    relative: Annotated[
        float | None, typer.Option(help="The largest half-width for a large sum, as a share of it, such as 0.05.")
    ] = None,
    presence: Annotated[
        str | None,
        typer.Option(help='The largest tight losses of the presence of records, such as "median=0.25,largest=50".'),
    ] = None,
    bands: Annotated[
        str | None,
        typer.Option(
            help='The largest tight losses between values and others within a band, such as "largest=1". Then '
            "roots and logs are tried, too."
        ),
    ] = None,
    times: Annotated[
        float | None, typer.Option(help="The factor of the band. By default 1.1, for 10 % more or less.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="The level of the intervals. By default 0.95.")] = None,
    at: Annotated[
        float | None, typer.Option(help="The small sum that --interval or --std is for. By default 0.")
    ] = None,
    large: Annotated[
        float | None,
        typer.Option(
            help="The large sum that --relative is for. By default the second-largest of the sizes, or "
            "100 times the error of small sums."
        ),
    ] = None,
    rare: Annotated[
        float | None,
        typer.Option(help="The largest ratio of the 99.9 % to the 95 % error of the results. By default 5."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="The unit that results are rounded to, for the plan.")] = None,
    largest: Annotated[
        float | None,
        typer.Option(help="The largest value that a release accepts, as public knowledge. The plan declares it."),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the losses by record size: a .png, .svg or .html file.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a plan (.toml) with the recommended mechanism.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="With --plan: the records, a file or the address of a database table.")
    ] = None,
    column: Annotated[str, typer.Option(help="With --plan: the column to sum.")] = "amount",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a mechanism with all its parameters, from record sizes and limits on errors and losses."""
    import slowscale as ss
    from slowscale.core.errors import ParameterError

    if (columns is None) == (records is None):
        problem = "is missing" if records is None else "is in the file for several columns"
        remedy = "give --records, or a file with several columns" if records is None else "give only one of the two"
        raise ParameterError("--records", problem, code="missing" if records is None else "conflict", remedy=remedy)
    asked: dict[str, Any] = {
        "interval": interval, "std": std, "relative": relative, "times": times, "level": level, "at": at,
        "large": large, "rare": rare, "unit": unit, "largest": largest,
        "presence": None if presence is None else _parse_named(presence, "--presence", "median=0.25,largest=50"),
        "bands": None if bands is None else _parse_named(bands, "--bands", "largest=1"),
    }  # fmt: skip
    asked = {name: value for name, value in asked.items() if value is not None}
    for path, ending in ((chart, CHART), (plan, ".toml")):
        if path is not None:
            writable_path(path, ending, overwrite)
    with options_of(advise):
        if columns is not None:
            found = ss.advise_columns(_read_columns(columns), **asked)
            if chart is not None:
                raise ParameterError("--chart", "is for one column", code="conflict", remedy="remove it")
            if plan is not None:
                _say_planned(found.plan(plan, data, overwrite))
            print_json(found.to_dict()) if as_json else echo(str(found))
            return
        assert records is not None
        advice = ss.advise(_parse_named(records, "--records", "median=268689,largest=39e9"), **asked)
    if chart is not None:
        echo(f"wrote {advice.chart().save(chart, overwrite)}", err=True)
    if plan is not None:
        _say_planned(advice.plan(plan, data, column, overwrite))
    print_json(advice.to_dict()) if as_json else echo(str(advice))


def _say_planned(written: Path) -> None:
    echo(f"wrote {written}: edit it, then `slowscale check {written}`", err=True)


def _read_columns(path: Path) -> dict[str, Any]:
    """Return the tables of a file with one table per column."""
    import tomllib

    from slowscale.core.errors import ParameterError

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ParameterError(str(path), problem, code="unreadable", remedy="check the path") from None
    except ValueError as error:
        remedy = "it needs a table for each column, such as [pay] with records = { largest = 4e10 } and interval = 150"
        raise ParameterError(str(path), f"is not TOML: {error}", code="syntax", remedy=remedy) from None


def _parse_named(text: str, option: str, example: str) -> dict[str, float]:
    """Return the numbers by name in text such as median=12,largest=4e10."""
    from slowscale.core.errors import ParameterError

    pairs = [parse_assignment(part.strip(), option, example) for part in text.split(",")]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ParameterError(option, f"must have each name once, such as {example}", code="duplicate", given=text)
    return named


def compare(
    std: Annotated[float, typer.Option(help="The standard deviation that every mechanism has.")],
    at: Annotated[float, typer.Option(help="The sum at which root and log, whose error grows with the sum, have it.")],
    sizes: RecordSizes = None,
    accounting: Annotated[
        str | None,
        typer.Option(metavar="tight|closed", help="Compare the tight policies, which is the default, or closed forms."),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the policies in a .png, .svg or .html file.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare mechanisms that have the same error: what records of each size lose."""
    import slowscale as ss
    from slowscale.accounting.sizes import read_sizes
    from slowscale.core.errors import ParameterError
    from slowscale.core.numbers import format_number
    from slowscale.mechanisms import same_error
    from slowscale.mechanisms.calibration import ACCOUNTING, WIDEST

    accounting = ACCOUNTING if accounting is None else accounting
    if std > WIDEST and not at > 0:
        raise ParameterError(
            "--at",
            allowed=f"above 0 where --std is above {WIDEST:,.0f}, because it is the scale of the exponential polylog",
            given=at,
        )
    with options_of(compare):
        candidates = same_error(std, at)
    shown = read_sizes(sizes, argument="--sizes") or _default_sizes(std, at)
    values = {size.name: size.everywhere or 0.0 for size in shown}
    influences: Any = values if shown[0].named else list(values.values())
    if chart is not None:
        writable_path(chart, CHART, overwrite)
    with options_of(compare, influences="--sizes"):
        compared = ss.compare(
            candidates, influences=influences, queries=[at, 100 * at, 10_000 * at], accounting=accounting
        )
    if chart is not None:
        from slowscale.publish.charts import write_chart

        written = write_chart(candidates, chart, compared.searched, values.values(), overwrite, accounting)
        echo(f"wrote {written}", err=True)
    if as_json:
        rows = zip(candidates.items(), compared.losses.tolist(), strict=True)
        print_json(
            {
                name: {"mechanism": mechanism.to_dict(), "losses": dict(zip(influences, losses, strict=True))}
                for (name, mechanism), losses in rows
            }
        )
        return
    place = at if std > WIDEST else None  # as in `same_error`
    scales = {name: found._scale_words({}, "std", place) for name, found in candidates.items()}
    lines = [f"Every mechanism has a standard deviation of {format_number(std)} for a sum of {format_number(at)}."]
    lines += [f"The scale of {name} is {scale}." for name, scale in scales.items() if scale is not None]
    echo(f"{' '.join(lines)}\n")
    echo(str(compared))


def _default_sizes(std: float, at: float) -> Sequence["RecordSize"]:
    """Return powers of ten, from below the standard deviation and the sum to far above them."""
    from slowscale.accounting.sizes import RecordSize
    from slowscale.core.numbers import format_number

    exponents = [math.log10(size) for size in (std, at) if size > 0]
    low, high = math.floor(min(exponents)) - 1, math.ceil(max(exponents)) + 3
    low, high = max(low, -300), min(high, 300)
    step = math.ceil((high - low) / 5)
    powers = [10.0**exponent for exponent in range(high, low - 1, -step)][::-1]
    return [RecordSize(format_number(size), everywhere=size, named=False) for size in powers]


def calibrate(
    mechanism: Annotated[
        str, typer.Argument(metavar="MECHANISM", help="The mechanism, such as gaussian, exponential-polylog or root.")
    ],
    std: Std = None,
    interval: Interval = None,
    level: Level = None,
    loss: LossTarget = None,
    accounting: Accounting = None,
    at: At = None,
    param: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=NUMBER",
            help="A fixed parameter, such as p=0.5 or k=4; for root, log and arsinh also noise=laplace, or "
            "noise=generalized-gaussian and noise.p=0.5. For exponential-polylog, sigma is the size up to which the "
            "loss of a record grows in proportion to its size; beyond it, like a power of the logarithm.",
        ),
    ] = [],  # noqa: B006
    sizes: RecordSizes = None,
    as_json: AsJson = False,
) -> None:
    """Solve for the parameter that meets a target, and show what records then lose."""
    from slowscale.accounting import RecordPolicy
    from slowscale.accounting.sizes import read_sizes
    from slowscale.cli.printing import show_mechanism
    from slowscale.core.errors import CalibrationError, ParameterError
    from slowscale.core.numbers import format_number
    from slowscale.mechanisms.calibration import ACCOUNTING, CLOSED, LEVEL, charged_policy, closed_form
    from slowscale.plan.parts import MECHANISMS, constructor_arguments, mechanism_like, noise_of
    from slowscale.release.columns import column_policies, shown_sizes

    if mechanism not in MECHANISMS:
        like = mechanism_like(mechanism)
        remedy = None if like is None else f"did you mean {like!r}?"
        raise ParameterError("mechanism", allowed=tuple(MECHANISMS), given=mechanism, remedy=remedy)
    given = parse_parameters(param, "k=4")
    if sum(target is not None for target in (std, interval, loss)) != 1:
        raise ParameterError(
            "give one target:",
            "--std for a standard deviation, --interval for the half-width of an interval, or --loss and --at for a "
            "record's loss",
            code="conflict",
        )
    stated = read_sizes(sizes, argument="--sizes")
    accounting = ACCOUNTING if accounting is None else accounting
    with options_of(calibrate):
        if "noise" in given:
            kind, parameters = given["noise"], {}
            if isinstance(kind, dict):
                kind, parameters = kind["mechanism"], {name: kind[name] for name in kind if name != "mechanism"}
            given["noise"] = noise_of(kind, parameters)
        fixed = constructor_arguments(mechanism, given)
        found = MECHANISMS[mechanism].calibrate(
            std=std,
            interval=interval,
            level=LEVEL if level is None else level,
            loss=loss,
            at=at,
            accounting=accounting,
            **fixed,
        )
    target = "std" if std is not None else "interval" if interval is not None else "loss"
    scale = found._scale_words(fixed, target, at)
    policy, closed = charged_policy(found, accounting), closed_form(found, accounting)
    if as_json:
        described: dict[str, Any] = {
            "mechanism": found.to_dict(),
            "accounting": accounting,
            "policy": policy.to_dict(),
        }
        if scale is not None:
            described["scale"] = scale
        known = {size.name: size.everywhere for size in stated if size.everywhere is not None}
        if stated:
            described["losses"] = {name: policy(size) for name, size in known.items()}
        if stated and closed is not None:
            described["closed_losses"] = {name: closed(size) for name, size in known.items()}
        print_json(described)
        return
    charged = RecordPolicy(((mechanism, policy),))
    columns = column_policies(charged, {mechanism: found}, {}, {mechanism: None}, accounting)
    shown = shown_sizes(columns, stated)
    if loss is not None and at is not None and not stated:  # show that the target is met
        with options_of(calibrate):
            shown = tuple(sorted({*shown, *read_sizes([at], argument="at")}, key=lambda size: size.everywhere or 0.0))
    show_mechanism(columns[0], shown, scale)
    if loss is not None and closed is not None:
        with suppress(CalibrationError):  # the closed form may be unable to meet the target at all
            other = MECHANISMS[mechanism].calibrate(loss=loss, at=at, accounting=CLOSED, **fixed)
            echo(f"  by the closed form, the same loss needs a standard error of {format_number(other.std(0.0))}")


def study(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the page, the figures and the data.")] = Path(
        "study"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Release every table 100 times instead of 1,000.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="How often every table is released; 1,000 by default.")
    ] = None,
    loss: Annotated[
        list[float] | None,
        typer.Option(help="The loss of the largest record at which mechanisms are compared: 10 and 50 by default."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Study a table of your own, with --value and --by.")
    ] = None,
    value: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="With --data: a column to sum.")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="With --data: the columns that form the cells, with commas.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Carry out the paper's experiments, and compare what it says with what is measured.

    Without --data the data are simulated, like those of the paper. With --data all results are CONFIDENTIAL. A study
    that was interrupted continues where it stopped.
    """
    from slowscale.core.errors import ParameterError
    from slowscale.study.attributes import given_attributes
    from slowscale.study.run import LOSSES, QUICK_REPETITIONS, REPETITIONS, run_study

    if quick and repetitions is not None:
        raise ParameterError("--quick", "excludes --repetitions", code="conflict", remedy="give one of the two")
    if (data is None) != (not value) or (data is None) != (not by):
        problem = "go together: the table, the columns to sum, and those that form the cells"
        raise ParameterError("--data, --value and --by", problem, code="conflict")
    attributes = None
    if data is not None:
        columns = list(dict.fromkeys(value or []))
        attributes = given_attributes(data, columns, [name.strip() for name in (by or "").split(",")])
        echo(f"warning: the results are CONFIDENTIAL: they show exact facts about the records of {data}", err=True)
    releases = repetitions or (QUICK_REPETITIONS if quick else REPETITIONS)
    named = None if data is None else str(data)
    try:
        with options_of(study):
            found = run_study(out, attributes, releases, loss or LOSSES, named, overwrite=overwrite)
    except KeyboardInterrupt:
        echo("\nRun the same command again, and the study continues where it stopped.", err=True)
        raise
    counts = Counter(finding.verdict for _, finding in found.claims)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    echo(f"{len(found.claims)} claims of the paper: {verdicts}")
    echo(f"wrote {found.page}, and the folders {out / 'figures'} and {out / 'data'}")
