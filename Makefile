# Two commands do everything: `make book` and `make test`. The rest is comfort.
PROFILE ?= ci
SEED ?= 0
JOBS ?=
CHAPTERS ?=
VENV ?= .venv
PYTHON ?= python3

BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A process for each core, up to four; a file of tests is one piece of work, the longest come first (tests/conftest.py).
SIDE_BY_SIDE := -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# JupyterLab's settings of this project stay in this project.
JUPYTER := JUPYTER_CONFIG_DIR="$(CURDIR)/.jupyter"

.DEFAULT_GOAL := help
.PHONY: help book test test-site benchmark lab serve lint lock clean

help: ## say what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12
	@printf '\nVariables: PROFILE=%s SEED=%s JOBS=%s CHAPTERS=%s\n' '$(PROFILE)' '$(SEED)' '$(JOBS)' '$(CHAPTERS)'

book: $(READY) ## execute what changed, judge every claim, make the site
	$(BIN)/leakage build $(CHAPTERS) --profile "$(PROFILE)" --seed "$(SEED)" $(if $(JOBS),--jobs "$(JOBS)")

test: $(READY) ## test the library, the chapters and the pipeline
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) --ignore=tests/site tests

test-site: $(READY) ## look at every page of the site that `make book` made, in a browser
	$(BIN)/python -m pytest -q tests/site

benchmark: $(READY) ## time our algorithms against the straightforward ones
	status=0; for chapter in min_norm blessing kkt_margin gradient_inversion polytopes; do \
	  $(BIN)/python benchmarks/$$chapter.py --record || status=1; \
	done; exit $$status

lab: $(READY) ## open the chapters as notebooks in JupyterLab
	$(JUPYTER) $(BIN)/jupytext-config set-default-viewer
	$(JUPYTER) $(BIN)/jupyter lab --LabApp.default_url=/lab/tree/book

serve: $(READY) ## show the site in a browser
	$(BIN)/leakage serve

lint: $(READY) ## check format, style and types, of the chapters too
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	.ci/lint-chapters $(wildcard book/*.md)

lock: ## pin the newest versions that pyproject.toml allows (needs uv)
	uv pip compile pyproject.toml --all-extras --python-version 3.11 --no-emit-package torch --no-header --no-annotate \
	  --upgrade --output-file requirements.lock

clean: ## delete everything generated; the virtual environment stays
	rm -rf _build .pytest_cache .ruff_cache

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c requirements.lock -e ".[test]"
	touch $@
