"""Commands about mechanisms, without data: `compare` puts several side by side, `calibrate` finds parameters."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.cli.shared import (
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
    in_options,
    parse_parameter,
    print_json,
    writable_path,
)

if TYPE_CHECKING:
    from slowscale.accounting.sizes import RecordSize


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
    candidates = same_error(std, at)
    shown = read_sizes(sizes, argument="--sizes") or _default_sizes(std, at)
    values = {size.name: size.everywhere or 0.0 for size in shown}
    influences: Any = values if shown[0].named else list(values.values())
    if chart is not None:
        writable_path(chart, "", overwrite)
    try:
        compared = ss.compare(
            candidates, influences=influences, queries=[at, 100 * at, 10_000 * at], accounting=accounting
        )
    except ParameterError as error:
        raise ParameterError(re.sub(r"^influences\b", "--sizes", in_options(str(error)))) from None
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
            help="A fixed parameter, such as p=0.5 or k=4. For exponential-polylog, sigma is the size up to which the "
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
    from slowscale.core.errors import CalibrationError, ParameterError, SlowscaleError
    from slowscale.core.numbers import format_number
    from slowscale.mechanisms.calibration import ACCOUNTING, CLOSED, LEVEL, charged_policy, closed_form
    from slowscale.plan.mechanisms import MECHANISMS, constructor_arguments
    from slowscale.release.columns import column_policies, shown_sizes

    if mechanism not in MECHANISMS:
        raise ParameterError("mechanism", allowed=f"one of {', '.join(MECHANISMS)}", given=mechanism)
    given = _parse_parameters(param)
    if sum(target is not None for target in (std, interval, loss)) != 1:
        raise ParameterError(
            "give one target: --std for a standard deviation, --interval for the half-width of an interval, or --loss "
            "and --at for a record's loss"
        )
    stated = read_sizes(sizes, argument="--sizes")
    accounting = ACCOUNTING if accounting is None else accounting
    try:
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
    except SlowscaleError as error:
        raise ParameterError(in_options(str(error))) from None
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
        shown = tuple(sorted({*shown, *read_sizes([at])}, key=lambda size: size.everywhere or 0.0))
    show_mechanism(columns[0], shown, scale)
    if loss is not None and closed is not None:
        with suppress(CalibrationError):  # the closed form may be unable to meet the target at all
            other = MECHANISMS[mechanism].calibrate(loss=loss, at=at, accounting=CLOSED, **fixed)
            echo(f"  by the closed form, the same loss needs a standard error of {format_number(other.std(0.0))}")


def _parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a mechanism, from text such as k=4."""
    from slowscale.core.errors import ParameterError
    from slowscale.plan import PARAMETERS

    known = [name for name in PARAMETERS if name != "estimator"]
    parameters: dict[str, Any] = {}
    for text in texts:
        name, value = parse_parameter(text, "k=4")
        if name not in known:
            raise ParameterError("--param", allowed=f"one of {', '.join(known)}", given=name)
        parameters[name] = value
    return parameters
