"""Errors are compared by their code, subject and path: wording is tested where it is rendered."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slowscale.core.errors import Place, SlowscaleError


@contextmanager
def refused(
    kind: type[SlowscaleError], subject: str | None = None, *, code: str | None = None, path: Place | None = None
) -> Iterator[pytest.ExceptionInfo[SlowscaleError]]:
    """Expect an error of this kind; and about this subject, with this code and at this place, where they are given."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    expected = {"subject": subject, "code": code, "path": path}
    found = {name: getattr(error, name) for name, value in expected.items() if value is not None}
    assert found == {name: value for name, value in expected.items() if value is not None}, f"{found}: {error}"
