# Everything goes through here. `make help` lists the targets: a line "name: ...  ## what it does" each.
PYTHON ?= python3
VENV := .venv
WHEEL := .venv-wheel
OLDEST := .venv-oldest
BIN := $(VENV)/bin
DIST := build/dist
# Torch is pinned in constraints.txt; every install goes through it.
INSTALL := bin/pip install --quiet --disable-pip-version-check -c constraints.txt
PINNED := pyproject.toml constraints.txt
AEM_DATA ?= $(wildcard ../shared/data)
export AEM_DATA

.PHONY: help demo test lint types unit packages same-numbers test-settings test-oldest results examples \
	docs bench bench-accuracy clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name what; do printf '%-20s %s\n' "$$name" "$$what"; done

$(VENV)/installed: $(PINNED)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/$(INSTALL) -e '.[dev]'
	touch $@

demo: $(VENV)/installed  ## learn the spirals and draw them (about two minutes)
	$(BIN)/aem reproduce spirals --preset fast --out runs/demo
	@echo "The picture: runs/demo/figure.png"

test: lint types unit packages  ## lint, type-check, test, and use the wheel by itself

lint: $(VENV)/installed  ## style, and tables in the docs that are not those of results/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.render --check

types: $(VENV)/installed  ## mypy
	$(BIN)/mypy

unit: $(VENV)/installed  ## the suite
	$(BIN)/pytest -n 2

# An environment of its own, with what pip installs for the library and no more: nothing of .venv is seen.
# Torch takes a minute to install, so it is kept until dependencies change; the wheel is always a new one.
$(WHEEL)/installed: $(PINNED)
	$(PYTHON) -m venv --clear $(WHEEL)
	$(WHEEL)/$(INSTALL) .
	touch $@

packages: $(VENV)/installed $(WHEEL)/installed  ## build wheel and sdist, and use the wheel by itself
	rm -rf $(DIST) && mkdir -p $(DIST)
	$(BIN)/python -m build --no-isolation --outdir $(DIST) . > build/log 2>&1 || (cat build/log; false)
	$(BIN)/twine check --strict $(DIST)/*
	$(WHEEL)/$(INSTALL) --no-deps --force-reinstall $(DIST)/*.whl
	$(BIN)/python -m tools.check_packages $(DIST) $(WHEEL)

# The tests of promises that must hold on any machine.
same-numbers: $(VENV)/installed  ## the tests of numbers that must not depend on the machine
	$(BIN)/pytest -n 2 tests/test_same_numbers.py tests/base/test_threads.py tests/model/test_distribution.py \
		tests/nn/kernels tests/training

test-settings: $(VENV)/installed  ## the suite under other instructions, threads and loads (an hour)
	$(BIN)/python -m benchmarks.claims.suite_settings

$(OLDEST)/installed: $(PINNED) tools/lower_bounds.py
	$(PYTHON) -m venv --clear $(OLDEST)
	$(PYTHON) -m tools.lower_bounds > $(OLDEST)/oldest.txt
	$(OLDEST)/$(INSTALL) -c $(OLDEST)/oldest.txt -e '.[test]'
	touch $@

test-oldest: $(OLDEST)/installed  ## the suite with the oldest versions that pyproject.toml allows
	$(OLDEST)/bin/pytest -n 2

results: $(VENV)/installed  ## write the tables of README and docs from results/
	$(BIN)/python -m tools.render
	$(BIN)/python -m tools.gallery

examples: $(VENV)/installed  ## run the examples of the documentation and write what they print
	$(BIN)/python -m tools.examples

docs: $(VENV)/installed  ## the documentation, into site/
	$(VENV)/$(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site: site/index.html"

# zuko is only compared with: where it does not install, the benchmark says so and goes on.
bench: $(VENV)/installed  ## speed beside the textbook and zuko (ten minutes); BENCH="--quick --device cpu"
	-$(VENV)/$(INSTALL) -e '.[bench]'
	$(BIN)/python -m benchmarks.speed.compare $(BENCH)

bench-accuracy: $(VENV)/installed  ## densities and anomalies out of the box, beside others (hours)
	$(VENV)/$(INSTALL) -e '.[bench]'
	$(BIN)/python -m benchmarks.accuracy.densities $(TABLES)
	$(BIN)/python -m benchmarks.accuracy.anomalies

clean:  ## remove what was installed and built; runs/ is yours and stays
	rm -rf $(VENV) $(WHEEL) $(OLDEST) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
