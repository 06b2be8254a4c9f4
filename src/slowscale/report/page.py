"""The page and its elements: functions that build HTML and escape all text that they are given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
$style</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
$banner
<div class="page">
<header>
<p class="eyebrow">$eyebrow</p>
<h1>$title</h1>
$lead
<nav aria-label="Contents"><ul>$contents</ul></nav>
</header>
<main id="content">
$sections
</main>
<footer>$footer</footer>
</div>
</body>
</html>
""")


class Html(str):
    """Text that is already HTML; any other text is escaped when it is inserted."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A section of the page, with its heading and its short title in the table of contents."""

    anchor: str
    short: str
    heading: str
    parts: Sequence[Html]


def html(text: object) -> Html:
    """Return HTML unchanged, and anything else escaped."""
    return text if isinstance(text, Html) else Html(escape(str(text)))


def tag(name: str, *content: object, **attributes: str) -> Html:
    """Return an element; the argument `class_` sets the attribute "class", and `aria_label` sets "aria-label"."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{written}>{''.join(map(html, content))}</{name}>")


def joined(parts: Iterable[object], separator: str = "") -> Html:
    """Return the parts, joined by a separator."""
    return Html(html(separator).join(map(html, parts)))


def paragraph(*content: object, **attributes: str) -> Html:
    """Return a paragraph."""
    return tag("p", *content, **attributes)


def facts(entries: Mapping[str, object] | Iterable[tuple[object, object]]) -> Html:
    """Return a description list: terms, each with its description."""
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    return tag("dl", *(joined([tag("dt", term), tag("dd", what), "\n"]) for term, what in pairs), class_="facts")


def table(title: object, head: Iterable[Html], bodies: Iterable[Html], label: str) -> Html:
    """Return a table that scrolls horizontally if it is too wide, also by keyboard."""
    inside = tag("table", tag("caption", title), tag("thead", *map(html, head)), *bodies)
    return Html(f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>')


def caption(number: str, text: str, note: str = "") -> Html:
    """Return the caption of a table: its number, its title, and a note."""
    return joined([f"{number} {text}", tag("span", note)])


def row(*cells: Html) -> Html:
    """Return a row of a table."""
    return Html(f"<tr>{''.join(cells)}</tr>\n")


def head(text: object, scope: str = "col", numeric: bool = False, **attributes: str) -> Html:
    """Return the heading of a row or a column."""
    return tag("th", text, scope=scope, **({"class_": "n"} if numeric else {}), **attributes)


def cell(text: object, numeric: bool = True, **attributes: str) -> Html:
    """Return a cell of a table."""
    return tag("td", text, **({"class_": "n"} if numeric else {}), **attributes)


def page(
    title: str, eyebrow: str, lead: Iterable[Html], sections: Sequence[Section], footer: object, banner: str = ""
) -> str:
    """Return the whole page."""
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    contents = (tag("li", tag("a", one.short, href=f"#{one.anchor}")) for one in sections)
    bodies = (
        tag("section", tag("h2", one.heading, id=one.anchor), "\n", *one.parts, aria_labelledby=one.anchor)
        for one in sections
    )
    return PAGE.substitute(
        title=escape(title),
        style=style,
        banner=paragraph(banner, class_="banner", role="alert") if banner else "",
        eyebrow=escape(eyebrow),
        lead="\n".join(lead),
        contents="".join(contents),
        sections="\n".join(bodies),
        footer=html(footer),
    )
