# Everything on a machine that has Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# which campaigns `make soak` runs, and for how long; all of them by default
CAMPAIGNS ?=
MINUTES ?= 60
# which commands `make benchmarks` runs, by parts of them; all by default
ONLY ?=

PLAYGROUND := src/attsvm/playground/page/index.html

.PHONY: install develop playground check-playground test test-fast test-long test-wheel test-oldest soak check schemas api counts docs site paper demo
.PHONY: reproduce benchmarks gpu dist clean

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
	$(BIN)/attsvm fit digits --classes 3,8 --no-train-head --draws 1 --out demo/digits-fixed-head --force

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

api: develop  ## docs/api/public_api.txt: every public name with its signature
	PYTHONPATH=tests $(BIN)/python -m structure.public_api

counts: develop  ## tests/structure/counts.toml: the counts of doors, names and lines, where they have fallen
	PYTHONPATH=tests $(BIN)/python -m structure.counts --write

docs: develop  ## the site; open docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going --quiet -b html docs docs/_build/html

site: docs  ## the docs with the playground, in a folder for any static host
	rm -rf build/site && mkdir -p build && cp -r docs/_build/html build/site
	rm -rf build/site/.doctrees build/site/.buildinfo && touch build/site/.nojekyll
	@echo "site: build/site/index.html"

paper: develop  ## a report, build/paper/attsvm.pdf; FRESH=1 measures its figures again, six minutes
	$(BIN)/python docs/paper/build.py $(if $(FRESH),--fresh)

benchmarks: develop  ## hours: every benchmark, and the tables in the notes; a later call goes on where this one ends
	$(BIN)/python benchmarks/all.py $(ONLY)

gpu: develop  ## days, on a GPU: its tests, its table, and the papers' experiments at their sizes
	@$(BIN)/python benchmarks/gpu.py

test-wheel: develop  ## the wheel in fresh environments outside the checkout; ALL=1 for each extra alone, too
	$(BIN)/python tests/release/wheel.py $(if $(ALL),--all)

test-oldest: develop  ## the tests without the slow modules, with the oldest versions that pyproject.toml allows
	$(BIN)/python tests/release/oldest.py

dist: develop  ## the wheel and the source archive of a release, in dist/
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) demo build dist docs/_build docs/generated .pytest_cache .ruff_cache .mypy_cache .hypothesis
