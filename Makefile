# Everything on a machine that has Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# which campaigns `make soak` runs, and for how long; all of them by default
CAMPAIGNS ?=
MINUTES ?= 60

PLAYGROUND := src/attsvm/playground/page/index.html

.PHONY: install develop playground check-playground paper test test-fast test-long soak check schemas docs demo reproduce benchmarks dist clean

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
	$(BIN)/attsvm fit digits --classes 3,8 --no-train-head --seeds 1 --out demo/digits-fixed-head --force

reproduce: install  ## every figure and table at full size; open out/reproduce/index.html
	$(BIN)/attsvm reproduce all

test: develop
	$(BIN)/pytest -n 2

test-fast: develop  ## for daily work: the tests without the slow modules
	$(BIN)/pytest -n 2 -m "not long and not slow"

test-long: develop  ## the same claims at full size, minutes of work
	$(BIN)/pytest -n 2 -m long

soak: develop  ## the harness that looks for defects, in parts: a later call goes on where this one ends
	PYTHONPATH=tests $(BIN)/python -m harness.soak $(CAMPAIGNS) --minutes $(MINUTES)

check: develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

playground:  ## builds the page of `attsvm playground` and the zoom of other pages, which are kept in the repository
	cd playground && npm ci --no-audit --no-fund && npm run build && npm run build:report

# everything of the page that needs Node: the page is what the source builds, and its tests
check-playground:
	@command -v npm >/dev/null || { echo "check-playground: skipped, Node is not installed"; exit 0; }; \
	cd playground && npm ci --no-audit --no-fund && npm run build -- --outDir ../build/playground && \
	cmp ../build/playground/index.html ../$(PLAYGROUND) && \
	npm run build:report -- --outDir ../build/report && \
	cmp ../build/report/zoom.js ../src/attsvm/pages/templates/zoom.js && npm test && \
	if command -v chromium >/dev/null; then npm run browser; \
	else echo "check-playground: tests in the browser skipped, Chromium is not installed"; fi

schemas: develop  ## docs/schemas, from the fields in attsvm/pages/schemas
	$(BIN)/python -m attsvm.pages.schemas docs/schemas

docs: develop  ## the site; open docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going --quiet -b html docs docs/_build/html

paper: develop  ## a report of eight pages, build/paper/attsvm.pdf; FRESH=1 measures its figures again, half an hour
	$(BIN)/python docs/paper/build.py $(if $(FRESH),--fresh)

benchmarks: develop
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/att_svm.py

dist: develop  ## the wheel and the source archive of a release, in dist/
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) demo build dist docs/_build docs/generated .pytest_cache .ruff_cache .mypy_cache .hypothesis
