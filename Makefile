# `make demo` and `make test` need only Python >= 3.11, git and make: everything else is set up in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHECKED := src tests bench examples

.PHONY: demo test bench lint format setup clean java chromium docs

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slowscale needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/slowscale demo --overwrite

test: $(READY) lint java chromium
	$(BIN)/python -m pytest -n auto --dist loadgroup

# Spark runs on Java 17 or 21: the machine's own, or else Debian's where we may install it.
java:
	@java -version 2>&1 | grep -Eq 'version "(17|21)' \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; } \
	|| echo "NO JAVA 17 OR 21, AND NO WAY TO INSTALL IT: SPARK IS NOT TESTED"

# The report is opened, and printed, in a real browser.
chromium:
	@{ command -v chromium && command -v pdftoppm; } >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium poppler-utils >/dev/null; } \
	|| echo "NO CHROMIUM, AND NO WAY TO INSTALL IT: THE REPORT IS NOT TESTED IN A BROWSER"

# The pages of docs/ as a site in site/.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(READY)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

# The libraries that benchmarks compare with: never dependencies, so in an environment of their own.
.venv-peers/.ready: bench/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers.txt
	@touch $@

bench: $(READY) .venv-peers/.ready
	@for file in bench/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv .venv-peers demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
