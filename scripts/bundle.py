"""Everything that slowscale needs on a machine without a network: `python scripts/bundle.py FOLDER [--extras A,B]`.

The folder holds the wheels of slowscale and of all packages that it needs on this platform and this version of Python,
their digests as requirements for pip, a bill of materials (CycloneDX), and how to install them.
"""

import argparse
import email
import email.message
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
NAME = "slowscale"
WHEELS, REQUIREMENTS, MATERIALS, INSTRUCTIONS = "wheels", "requirements.txt", "sbom.cdx.json", "INSTALL.txt"


@dataclass(frozen=True)
class Wheel:
    """A wheel: its file, the digest of the file and what its METADATA says."""

    path: Path
    digest: str
    metadata: email.message.Message

    @classmethod
    def read(cls, path: Path) -> "Wheel":
        """Read the metadata of a wheel."""
        with zipfile.ZipFile(path) as archive:
            (name,) = [name for name in archive.namelist() if name.split("/")[1:] == ["METADATA"]]
            metadata = email.message_from_bytes(archive.read(name))
        return cls(path, hashlib.sha256(path.read_bytes()).hexdigest(), metadata)

    @property
    def name(self) -> str:
        """The normalized name of the package."""
        return canonicalize_name(self.metadata["Name"])

    @property
    def version(self) -> str:
        """The version of the package."""
        return str(self.metadata["Version"])

    def needs(self, extras: frozenset[str]) -> list[Requirement]:
        """Return what the package with these extras needs on this machine."""
        stated = [Requirement(line) for line in self.metadata.get_all("Requires-Dist", [])]
        environments = [{"extra": extra} for extra in ("", *sorted(extras))]
        return [one for one in stated if one.marker is None or any(map(one.marker.evaluate, environments))]

    @property
    def licence(self) -> list[dict[str, Any]]:
        """The licence, in the words of CycloneDX."""
        if stated := self.metadata["License-Expression"]:
            return [{"expression": stated}]
        classified = [
            line.rpartition(" :: ")[2]
            for line in self.metadata.get_all("Classifier", [])
            if line.startswith("License :: ")
        ]
        first = str(self.metadata["License"] or "").strip().partition("\n")[0]
        names = classified or [first] * bool(first)
        return [{"license": {"name": name}} for name in names]


def dependencies(wheels: Sequence[Wheel], extras: Sequence[str]) -> dict[str, set[str]]:
    """Return the packages that each package needs, or raise ValueError if one is not there or does not fit."""
    known = {wheel.name: wheel for wheel in wheels}
    wanted: dict[str, frozenset[str]] = {}
    found: dict[str, set[str]] = {}
    left = [(NAME, frozenset(map(canonicalize_name, extras)))]
    while left:
        name, asked = left.pop()
        if name in wanted and asked <= wanted[name]:
            continue
        wanted[name] = wanted.get(name, frozenset()) | asked
        needs = known[name].needs(wanted[name])
        for need in needs:
            other = canonicalize_name(need.name)
            if other not in known or not need.specifier.contains(known[other].version, prereleases=True):
                raise ValueError(f"{name} needs {need}, which is not in the bundle")
            left.append((other, frozenset(map(canonicalize_name, need.extras))))
        found[name] = {canonicalize_name(need.name) for need in needs}
    return found


def requirements(wheels: Sequence[Wheel], extras: Sequence[str]) -> str:
    """Return a requirements file that installs the wheels beside it, and nothing from elsewhere."""
    asked = f"[{','.join(extras)}]" if extras else ""
    lines = [
        f"{wheel.name}{asked if wheel.name == NAME else ''}=={wheel.version} --hash=sha256:{wheel.digest}"
        for wheel in wheels
    ]
    return "\n".join(["--no-index", f"--find-links {WHEELS}", "--require-hashes", *lines]) + "\n"


def bill_of_materials(wheels: Sequence[Wheel], extras: Sequence[str], commit: str | None = None) -> dict[str, Any]:
    """Return the bill of materials: CycloneDX 1.6. The same wheels of the same commit have the same bill."""

    def component(wheel: Wheel) -> dict[str, Any]:
        # slowscale is on no package index.
        kind, where = ("application", "generic") if wheel.name == NAME else ("library", "pypi")
        return {
            "type": kind,
            "bom-ref": wheel.name,
            "name": wheel.name,
            "version": wheel.version,
            "purl": f"pkg:{where}/{wheel.name}@{wheel.version.replace('+', '%2B')}",
            "hashes": [{"alg": "SHA-256", "content": wheel.digest}],
            **({"licenses": wheel.licence} if wheel.licence else {}),
            "properties": [
                {"name": "file", "value": f"{WHEELS}/{wheel.path.name}"},
                *([{"name": "commit", "value": commit}] if wheel.name == NAME and commit is not None else []),
            ],
        }

    (main,) = [wheel for wheel in wheels if wheel.name == NAME]
    digests = " ".join(sorted(wheel.digest for wheel in wheels))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digests)}",
        "version": 1,
        "metadata": {"component": component(main)},
        "components": [component(wheel) for wheel in wheels if wheel is not main],
        "dependencies": [
            {"ref": name, "dependsOn": sorted(needs)} for name, needs in sorted(dependencies(wheels, extras).items())
        ],
    }


def instructions(wheels: Sequence[Wheel], extras: Sequence[str]) -> str:
    """Return how to install the bundle."""
    (main,) = [wheel for wheel in wheels if wheel.name == NAME]
    size = sum(wheel.path.stat().st_size for wheel in wheels) / 1e6
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    also = f" with {', '.join(extras)}" if extras else ""
    return f"""slowscale {main.version}{also}: {len(wheels)} packages, {size:.0f} MB

For Python {python} on {platform.system()} ({platform.machine()}). Nothing is downloaded; pip refuses a changed wheel.

In this folder, on Linux and macOS:

    python{python} -m venv slowscale-env
    slowscale-env/bin/python -m pip install -r {REQUIREMENTS}
    slowscale-env/bin/slowscale demo

On Windows:

    py -{python} -m venv slowscale-env
    slowscale-env\\Scripts\\python -m pip install -r {REQUIREMENTS}
    slowscale-env\\Scripts\\slowscale demo

{MATERIALS} lists the packages, their versions, licences and digests (CycloneDX).
"""


def unknown_extras(extras: Sequence[str]) -> list[str]:
    """Return those names that are not extras of slowscale."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    known = set(map(canonicalize_name, stated))
    return [name for name in extras if canonicalize_name(name) not in known]


def current_commit() -> str | None:
    """Return the commit of the source folder, with .dirty if it was changed; None without its git repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=.dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def describe(folder: Path, extras: Sequence[str], commit: str | None = None) -> None:
    """Write the requirements, the bill of materials and the instructions for the wheels in a folder."""
    wheels = sorted(map(Wheel.read, (folder / WHEELS).glob("*.whl")), key=lambda wheel: wheel.name)
    texts = {
        MATERIALS: json.dumps(bill_of_materials(wheels, extras, commit), indent=2) + "\n",
        REQUIREMENTS: requirements(wheels, extras),
        INSTRUCTIONS: instructions(wheels, extras),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def main() -> None:
    """Make the bundle anew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extras", default="", help="such as excel,workbench")
    asked = parser.parse_args()
    target: Path = asked.folder.absolute()
    if target.exists() and not (target / MATERIALS).exists():
        sys.exit(f"{target} exists and is no bundle: remove it, or choose another folder")
    extras = [name.strip() for name in asked.extras.split(",") if name.strip()]
    if unknown := unknown_extras(extras):
        sys.exit(f"{unknown[0]} is not an extra of {NAME}: see [project.optional-dependencies] in pyproject.toml")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as work:
        new = Path(work) / "new"
        wanted = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--only-binary=:all:"]
        # Only slowscale itself is built here: the source of another package could do anything while it is built.
        subprocess.run([*pip, "-c", ROOT / "constraints.txt", "-w", new / WHEELS, wanted], check=True)
        describe(new, extras, current_commit())
        if target.exists():
            target.rename(Path(work) / "old")
        shutil.move(new, target)
    print((target / INSTRUCTIONS).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
