# `make demo` needs only Python >= 3.11, git and make; slowscale and what it needs are installed into .venv. `make test`
# adds the tools of developers to it, and calls `make system`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALLED := .venv/.installed
READY := .venv/.ready
CHECKED := src tests bench examples scripts

.PHONY: demo test mutants bench bundle lint format setup develop system clean docs

# slowscale as its users have it, for example with: make setup EXTRAS=excel,workbench
setup: $(INSTALLED)
	$(if $(EXTRAS),$(PIP) install -c constraints.txt -e '.[$(EXTRAS)]')

# The same with all extras, and what tests, checks and pages need.
develop: $(READY)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slowscale needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(READY): $(INSTALLED)
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/slowscale demo --overwrite

# The wheels of slowscale and of all that it needs, in bundle/, for machines without a network that have this platform and
# this version of Python. With extras: make bundle EXTRAS=excel,workbench
bundle: $(INSTALLED)
	$(BIN)/python scripts/bundle.py bundle $(if $(EXTRAS),--extras $(EXTRAS))

test: $(READY) lint system
	$(BIN)/python -m pytest -n auto --dist loadgroup

# The tests need Java 17 or 21 for Spark, Chromium and Poppler to open and print the report, and minisign to judge the
# signatures. If you are root on Debian, missing packages are installed; otherwise they are listed. Tests that need them
# are skipped, or fail if CI=true.
system:
	@java -version 2>&1 | grep -Eq 'version "(17|21)' \
	|| $(call install,openjdk-17-jre-headless,NO JAVA 17 OR 21: SPARK IS NOT TESTED)
	@{ command -v chromium && command -v pdftoppm; } >/dev/null \
	|| $(call install,chromium poppler-utils,NO CHROMIUM OR NO PDFTOPPM: THE REPORT IS NOT TESTED IN A BROWSER)
	@command -v minisign >/dev/null || $(call install,minisign,NO MINISIGN: IT DOES NOT JUDGE THE SIGNATURES)

install = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& echo "make system: installing with apt-get, on this machine: $(1)" \
	&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null; } \
	|| echo "$(2). To test it, install as root: apt-get install $(1)"

# Put small faults into the code that decides privacy, one at a time, and list those that no unit test notices. This takes
# hours. A second run continues where the first one stopped; `rm -r .mutants` starts anew. A sample takes minutes:
# make mutants PARTS="advice roll-ups" SAMPLE=100 SEED=1
mutants: $(READY)
	$(PIP) install -c constraints.txt -e '.[mutants]'
	PYTHONPATH=tests CI=true OMP_NUM_THREADS=1 $(BIN)/python -m mutation run $(PARTS) \
	$(if $(SAMPLE),--random $(SAMPLE) --seed $(or $(SEED),0))

# Build the pages of docs/ as a site in site/.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(READY)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

# The libraries that the benchmarks compare with. They are never dependencies, so they get an environment of their own.
.venv-peers/.ready: bench/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers.txt
	@touch $@

bench: $(READY) .venv-peers/.ready
	@for file in bench/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv .venv-peers .mutants demo site build bundle dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
