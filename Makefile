# `make demo` and `make test` need only Python >= 3.11, git and make: everything else is set up in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHECKED := src tests bench examples

.PHONY: demo test bench lint format setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slowscale needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/publish_establishments.py

test: $(READY) lint
	$(BIN)/python -m pytest -n auto --dist loadgroup

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
	rm -rf .venv .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
