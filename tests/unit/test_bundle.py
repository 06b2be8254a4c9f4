"""The bundle for machines without a network: digests, a bill of materials, and wheels that are complete."""

import hashlib
import json
import subprocess
import sys
import zipfile

import pytest
from helpers.scripts import bundle

WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder, name, version, *metadata):
    """Write a wheel with one module and return its path."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    path = folder / "wheels" / f"{module}-{version}-py3-none-any.whl"
    path.parent.mkdir(exist_ok=True)
    stated = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *metadata, ""])
    files = {f"{module}.py": f"version = {version!r}\n", f"{info}/METADATA": stated, f"{info}/WHEEL": WHEEL}
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def folder(tmp_path):
    """The wheels of slowscale with an extra, which needs a further extra of another package."""
    make_wheel(
        tmp_path, "slowscale", "0.1.dev5+gabc", "License-Expression: Apache-2.0", "Requires-Dist: Numbers>=2",
        "Requires-Dist: sheets[fast]; extra == 'excel'", "Requires-Dist: winapi; sys_platform == 'none'",
        "Provides-Extra: excel",
    )  # fmt: skip
    make_wheel(tmp_path, "numbers", "2.0", "License: BSD\n  and its text", "Requires-Dist: x; python_version < '3'")
    make_wheel(
        tmp_path, "sheets", "1.5", "Classifier: License :: OSI Approved :: MIT License",
        "Requires-Dist: speed-ups; extra == 'fast'",
    )  # fmt: skip
    make_wheel(tmp_path, "speed-ups", "1")
    return tmp_path


def test_the_bill_lists_every_package_with_its_digest(folder):
    bundle.describe(folder, ["excel"])
    bill = json.loads((folder / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    main = bill["metadata"]["component"]
    parts = {one["name"]: one for one in [main, *bill["components"]]}
    assert sorted(parts) == ["numbers", "sheets", "slowscale", "speed-ups"]
    for one in parts.values():
        (file,) = [stated["value"] for stated in one["properties"]]
        assert one["hashes"][0]["content"] == hashlib.sha256((folder / file).read_bytes()).hexdigest()
    assert main["purl"] == "pkg:generic/slowscale@0.1.dev5%2Bgabc"
    assert parts["numbers"]["purl"] == "pkg:pypi/numbers@2.0"
    assert main["licenses"] == [{"expression": "Apache-2.0"}]
    assert parts["numbers"]["licenses"] == [{"license": {"name": "BSD"}}]
    assert parts["sheets"]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert {one["ref"]: one["dependsOn"] for one in bill["dependencies"]} == {
        "slowscale": ["numbers", "sheets"], "numbers": [], "sheets": ["speed-ups"], "speed-ups": [],
    }  # fmt: skip
    before = (folder / "sbom.cdx.json").read_bytes()
    bundle.describe(folder, ["excel"])
    assert (folder / "sbom.cdx.json").read_bytes() == before


def test_no_address_is_in_the_bundle(folder):
    bundle.describe(folder, ["excel"])
    for file in folder.glob("*.*"):
        assert "://" not in file.read_text(), file


@pytest.mark.parametrize(
    ("name", "version"), [("numbers", "1.9"), ("sheets", None), ("speed-ups", None)], ids=["old", "extra", "deeper"]
)
def test_an_incomplete_bundle_is_refused(folder, name, version):
    for path in (folder / "wheels").glob(f"{name.replace('-', '_')}-*"):
        path.unlink()
    if version is not None:
        make_wheel(folder, name, version)
    with pytest.raises(ValueError, match=f"needs {name}|needs N"):
        bundle.describe(folder, ["excel"])
    assert not (folder / "requirements.txt").exists()


def test_pip_installs_the_bundle_and_refuses_a_changed_wheel(folder, tmp_path):
    bundle.describe(folder, ["excel"])

    def install(where):
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--target", where]
        return subprocess.run([*pip, "-r", folder / "requirements.txt"], capture_output=True, text=True, check=False)

    done = install(tmp_path / "one")
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in (tmp_path / "one").glob("*.py")} == {"slowscale", "numbers", "sheets", "speed_ups"}
    with zipfile.ZipFile(folder / "wheels" / "numbers-2.0-py3-none-any.whl", "a") as archive:
        archive.writestr("numbers_more.py", "")
    refused = install(tmp_path / "two")
    assert refused.returncode != 0
    assert "HASH" in refused.stderr.upper()


def test_the_bill_names_the_commit_of_slowscale(folder):
    bundle.describe(folder, ["excel"], "abc123")
    bill = json.loads((folder / "sbom.cdx.json").read_text())
    assert {"name": "commit", "value": "abc123"} in bill["metadata"]["component"]["properties"]
    assert not [one for part in bill["components"] for one in part["properties"] if one["name"] == "commit"]


def test_an_extra_that_does_not_exist_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bundle.py", str(tmp_path / "new"), "--extras", "excel,exel"])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was collected"))
    with pytest.raises(SystemExit, match="exel is not an extra"):
        bundle.main()
    assert bundle.unknown_extras(["excel", "Workbench"]) == []
