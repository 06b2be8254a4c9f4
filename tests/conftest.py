"""Settings for the whole test suite."""

import os

from hypothesis import settings

# In CI the drawn examples are the same every time: a failure there is a finding, never bad luck.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true", print_blob=True)
settings.load_profile("default")

# These are imported by the tests that use them, and not searched for doctests: importing helpers/toy.py registers a
# mechanism for the whole process, and importing a module of unit/golden once more registers its checks twice.
collect_ignore = ["helpers", "unit/golden"]
