"""Settings for the whole test suite."""

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

# In CI the drawn examples are the same every time: a failure there is a finding, never bad luck.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true", print_blob=True)
settings.load_profile("default")

# Programs that tests start read compiled modules, as those of an installed package do: they start faster by a quarter.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# These are not searched for doctests. Importing helpers/toy.py registers a mechanism for the whole process, importing a
# module of unit/golden once more registers its checks twice, and mutation needs the extra `mutants`.
collect_ignore = ["helpers", "mutation", "unit/golden"]


# Tight curves are kept in a folder of this run, which the processes of xdist share.
if "SLOWSCALE_CACHE" not in os.environ:
    CURVES = tempfile.mkdtemp(prefix="slowscale-curves-")
    os.environ["SLOWSCALE_CACHE"] = CURVES
    atexit.register(shutil.rmtree, CURVES, ignore_errors=True)
