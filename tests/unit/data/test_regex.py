"""Patterns of the common subset are expanded, and everything else is refused."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slowscale.data.dialects import END, RefusedError, compile_pattern, escaped


@pytest.mark.parametrize(
    ("pattern", "spelled"),
    [
        ("abc", "abc"),
        ("^a+$", r"\Aa+\Z"),
        (r"\d{2,3}x?", "[0-9]{2,3}x?"),
        (r"\s\w*", "[ \t\n\f\r][A-Za-z0-9_]*"),
        (".", r"[^\n]"),
        (r"[^\d\-x]", r"[^0-9\-x]"),
        ("[a-c_-]", r"[a-c_\-]"),
        ("[.*]", r"[\.\*]"),
        (r"a\.b\|c", r"a\.b\|c"),
        ("a|^b$|", r"a|\Ab\Z|"),
        ("é😀", "é😀"),
        ("a-b,c", r"a\-b\,c"),
        (".b", r"[^\n]b"),
        (r"a\tb\nc", "a\tb\nc"),
        ("[a-]b", r"[a\-]b"),
        ("[-a]b", r"[\-a]b"),
        ("[a-a]b", "[a-a]b"),
        ("a{2,}b{0,3}", "a{2,}b{0,3}"),
        ("a$|b", r"a\Z|b"),
        ("a{0,}b{1}c{0,1}d{1,1}", "a{0,}b{1}c{0,1}d{1,1}"),
        ("a{255}", "a{255}"),
        ("a{1,255}", "a{1,255}"),
    ],
)
def test_spelling(pattern, spelled):
    assert compile_pattern(pattern).spelled("postgres") == spelled
    assert compile_pattern(pattern).spelled("duckdb") == spelled.replace(END["postgres"], END["duckdb"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a)", r"has '\(', which must be written"),
        ("a**", "has '\\*' after a repeat"),
        ("a+?", "after a repeat"),
        ("a{2}{3}", "after a repeat"),
        ("*a", "must be written"),
        ("a^b", "must be written"),
        ("a$b", "must be written"),
        ("a{3,2}", r"has the repeat '\{3,2\}'; the bounds must be in order and at most 255"),
        ("a{256}", "at most 255"),
        ("a{1,256}", "at most 255"),
        ("a{256,}", "at most 255"),
        ("a{0}", "the bounds must be in order"),
        ("a{,2}", "must be written"),
        ("[a", "has a \\[ without a closing \\]"),
        ("[]", "empty class"),
        ("[z-a]", "range"),
        ("[!-a]", "range"),
        ("[[:alpha:]]", "in a class"),
        ("[a&&b]", "in a class"),
        (r"\b", "not mean the same on every engine"),
        (r"a\bcd", r"has '\\\\b', which does not mean the same on every engine"),
        (r"\1", "not mean the same on every engine"),
        ("a\\", "not mean the same on every engine"),
        ("a\0", "NUL"),
    ],
)
def test_other_patterns_are_refused(pattern, message):
    with pytest.raises(RefusedError, match=message):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "empty"),
    [
        ("a*", True),
        ("^$", True),
        ("a*b", False),
        ("a|b?", True),
        ("a|b", False),
        ("a+", False),
        ("a{0,2}", True),
        ("a{0,}", True),
        ("a{1,2}", False),
        ("a{2,}", False),
        ("a?", True),
        ("[a]", False),
    ],
)
def test_patterns_that_match_an_empty_text_are_known(pattern, empty):
    assert compile_pattern(pattern).matches_empty is empty


def test_a_pattern_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        compile_pattern("a").matches_empty = True


@given(st.text(st.characters(exclude_characters="\0"), max_size=20))
def test_an_escaped_text_matches_itself(text):
    assert re.fullmatch(escaped(text), text)
    assert re.fullmatch(compile_pattern(escaped(text)).spelled("postgres"), text)
