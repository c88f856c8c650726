# Everything on a machine that has Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install test check demo benchmarks clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: install  ## the main job on real data, both ways; open demo/*/index.html
	$(BIN)/attsvm fit digits --classes 3,8 --out demo/digits-joint --force
	$(BIN)/attsvm fit digits --classes 3,8 --fix-head --out demo/digits-fixed-head --force

test: install
	$(BIN)/pytest -n 2

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# PyTorch and CVXPY are the peers; nothing but these scripts needs PyTorch
$(VENV)/benchmarks-installed: $(VENV)/installed
	$(BIN)/pip install --quiet 'torch==2.13.0'
	touch $@

benchmarks: $(VENV)/benchmarks-installed
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/att_svm.py

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
