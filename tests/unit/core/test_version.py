import subprocess
from pathlib import Path

import slowscale as ss
from slowscale.core import version

ROOT = Path(__file__).parents[3]


def test_the_version_names_the_commit():
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    base, _, local = ss.__version__.partition("+g")
    assert base.startswith("0.1")
    assert local.removesuffix(".dirty") == commit.strip()


def test_changes_are_named(tmp_path, monkeypatch):
    place = tmp_path / "src" / "slowscale" / "core" / "version.py"
    place.parent.mkdir(parents=True)
    place.write_text("one", encoding="utf-8")

    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e@x", *words], check=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    monkeypatch.setattr(version, "__file__", str(place))
    version.running_version.cache_clear()
    clean = version.running_version()
    place.write_text("two", encoding="utf-8")
    version.running_version.cache_clear()
    changed = version.running_version()
    version.running_version.cache_clear()
    assert changed == f"{clean}.dirty"


def test_outside_a_repository_it_is_the_built_one(tmp_path, monkeypatch):
    monkeypatch.setattr(version, "__file__", str(tmp_path / "a" / "b" / "c" / "version.py"))
    version.running_version.cache_clear()
    found = version.running_version()
    version.running_version.cache_clear()
    assert found.startswith("0.1")
    assert "dirty" not in found or ".d" in found
