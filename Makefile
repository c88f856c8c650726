# Everything on a machine that has Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# which campaigns `make soak` runs, and for how long; all of them by default
CAMPAIGNS ?=
MINUTES ?= 60

.PHONY: install develop test test-long soak check demo reproduce benchmarks clean

install: $(VENV)/installed

develop: $(VENV)/installed-to-develop

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

# the tests' oracles and the benchmarks' peers are among what developing needs: CVXPY, PyTorch
$(VENV)/installed-to-develop: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: install  ## the main job on real data, both ways; open demo/*/index.html
	$(BIN)/attsvm fit digits --classes 3,8 --out demo/digits-joint --force
	$(BIN)/attsvm fit digits --classes 3,8 --no-train-head --out demo/digits-fixed-head --force

reproduce: install  ## every figure and table at full size; open out/reproduce/index.html
	$(BIN)/attsvm reproduce all

test: develop
	$(BIN)/pytest -n 2

test-long: develop  ## the same claims at full size, minutes of work
	$(BIN)/pytest -n 2 -m long

soak: develop  ## the harness that looks for defects, in parts: a later call goes on where this one ends
	PYTHONPATH=tests $(BIN)/python -m harness.soak $(CAMPAIGNS) --minutes $(MINUTES)

check: develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

benchmarks: develop
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/att_svm.py

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
