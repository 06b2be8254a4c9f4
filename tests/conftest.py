"""Settings for the whole test suite."""

import atexit
import gc
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# Two processes share the cores already. BLAS reads this when numpy is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files of tests are kept in memory if it has room, so that no test waits for a disk; programs that tests start follow.
MEMORY, ROOM = "/dev/shm", 8e9
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = MEMORY
    tempfile.tempdir = None  # is asked for again

# In CI the drawn examples are the same every time: a failure there is a finding, never bad luck.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true", print_blob=True)
settings.load_profile("default")

# Programs that tests start read compiled modules, as those of an installed package do: they start faster by a quarter.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# These are not searched for doctests. Importing helpers/toy.py registers a mechanism for the whole process, importing a
# module of unit/golden once more registers its checks twice, and mutation needs the extra `mutants`.
collect_ignore = ["helpers", "mutation", "unit/golden"]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collecting makes millions of objects that stay; searching them for garbage takes longer than all the rest."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Tight curves are kept in a folder of this run, which the processes of xdist share.
if "SLOWSCALE_CACHE" not in os.environ:
    CURVES = tempfile.mkdtemp(prefix="slowscale-curves-")
    os.environ["SLOWSCALE_CACHE"] = CURVES
    atexit.register(shutil.rmtree, CURVES, ignore_errors=True)
