# Two commands do everything by themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AEM_DATA ?= $(wildcard ../shared/data)
export AEM_DATA

.PHONY: help demo test lint types unit clean

help:
	@echo "make demo   learn the spirals and draw them (about two minutes)"
	@echo "make test   lint, type-check and test"
	@echo "make bench  measure speed beside the textbook and zuko (about ten minutes on a CPU)"
	@echo "make bench-accuracy  densities and anomalies out of the box, beside others (hours)"
	@echo "make docs   build the documentation site"
	@echo "make clean  remove what was installed and built"

# Torch is pinned in constraints.txt; every install goes through it.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/aem reproduce spirals --preset fast --out runs/demo
	@echo "The picture: runs/demo/figure.png"

test: lint types unit

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.render --check

types: $(VENV)/installed
	$(BIN)/mypy

unit: $(VENV)/installed
	$(BIN)/pytest -n 2

# The tests of promises that must hold on any machine.
.PHONY: same-numbers test-settings
same-numbers: $(VENV)/installed
	$(BIN)/pytest -n 2 tests/test_same_numbers.py tests/base/test_threads.py tests/model/test_distribution.py tests/nn/kernels tests/training

test-settings: $(VENV)/installed  ## the suite under other instructions, threads and loads (an hour)
	$(BIN)/python -m benchmarks.claims.suite_settings

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache

.PHONY: results
results: $(VENV)/installed  ## write the tables in README and docs from results/
	$(BIN)/python -m tools.render
	$(BIN)/python -m tools.gallery

# zuko is only compared with, so it is no dependency; without it the benchmark says so and goes on.
.PHONY: bench
bench: $(VENV)/installed  ## speed side by side; BENCH="--quick --device cpu" and the like
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt zuko
	$(BIN)/python -m benchmarks.speed.compare $(BENCH)

.PHONY: bench-accuracy
bench-accuracy: $(VENV)/installed  ## densities and anomalies out of the box, beside others (hours)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.accuracy.densities $(TABLES)
	$(BIN)/python -m benchmarks.accuracy.anomalies

.PHONY: docs examples
docs: $(VENV)/installed  ## the site, into site/
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site: site/index.html"

examples: $(VENV)/installed  ## run the examples of the documentation and write what they print
	$(BIN)/python -m tools.examples
