# Two commands do everything: `make book` and `make test`. The rest is comfort.
PROFILE ?= ci
SEED ?= 0
DEVICE ?= auto
JOBS ?=
CHAPTERS ?=
OFFLINE ?=
VENV ?= .venv
PYTHON ?= python3
# Where PyTorch alone comes from, if not from PyPI: no other package may come from there.
TORCH_INDEX ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := _build/oldest
OLDEST_TORCH ?=
NUMERICAL = $(foreach part,audit inversion membership metrics models trainers,$(wildcard tests/leakage/$(part)/test_*.py)) \
  $(wildcard tests/reproduced/papers/*/test_*.py) $(foreach part,batches gpu,tests/test_$(part).py)
# The instructions that every processor has.
OLD_PROCESSOR := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Prescott
# A process for each core, up to four; a file of tests is one piece of work.
SIDE_BY_SIDE := -n logical --maxprocesses 4 --dist loadfile
# Each of the many processes of a build or a test would compile the library for itself.
unexport PYTHONDONTWRITEBYTECODE
# JupyterLab's settings of this project stay in this project.
JUPYTER := JUPYTER_CONFIG_DIR="$(CURDIR)/.jupyter"
# A kernel with as many threads as cores is five times slower on a busy machine; builds have this limit, too.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help book data test test-slow test-portable test-all test-oldest test-site benchmark lab serve lint lock clean

help: ## say what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
	@printf '\nVariables: PROFILE=%s SEED=%s DEVICE=%s JOBS=%s CHAPTERS=%s OFFLINE=%s\n' '$(PROFILE)' '$(SEED)' \
	  '$(DEVICE)' '$(JOBS)' '$(CHAPTERS)' '$(OFFLINE)'

book: $(READY) ## execute what changed, judge every claim, make the site
	$(if $(filter-out 0 no false,$(OFFLINE)),,-@$(BIN)/leakage data --needed --if-possible)
	$(BIN)/leakage build $(CHAPTERS) --profile "$(PROFILE)" --seed "$(SEED)" --device "$(DEVICE)" $(if $(JOBS),--jobs "$(JOBS)")

data: $(READY) ## fetch the public data sets that claims need, about 7 MB
	$(BIN)/leakage data --needed

test: $(READY) ## test what a change may break, in a few minutes
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not slow" --ignore=tests/site tests

test-slow: $(READY) ## test the rest: coverage, the smoke book, kills, clusters, benchmarks, a second device
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m slow --ignore=tests/site tests

# With another machine's rounding on top: see tests/last_bits.py.
test-portable: $(READY) ## test the numbers as other processors would compute them
	$(OLD_PROCESSOR) \
	  $(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not slow" --last-bits "$(SEED)" \
	  $(filter-out $(foreach part,command training,tests/leakage/audit/test_$(part).py),$(NUMERICAL))

test-all: test test-slow test-portable test-oldest ## test all of this

test-site: $(READY) ## look at every page of the site that `make book` made, in a browser
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) tests/site

# The library alone, without the book's packages: what pyproject.toml names at its oldest, all else as it is pinned. So
# is PyTorch, unless OLDEST_TORCH says otherwise: PyPI has the oldest one allowed, 2.6, with gigabytes of CUDA only.
test-oldest: $(READY) ## test the library with the oldest packages that pyproject.toml allows, in _build/oldest
	mkdir -p $(OLDEST)
	$(if $(OLDEST_TORCH),echo "torch==$(OLDEST_TORCH)",grep '^torch==' requirements.txt) > $(OLDEST)/torch.txt
	$(BIN)/python .ci/indirect-packages > $(OLDEST)/indirect.txt
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python $(BIN)/python --resolution lowest-direct \
	  --override $(OLDEST)/torch.txt --constraint $(OLDEST)/indirect.txt --output-file $(OLDEST)/requirements.txt \
	  pyproject.toml
	$(PYTHON) -m venv $(OLDEST)/venv
	$(OLDEST)/venv/bin/python -m pip install -q --no-compile -c $(OLDEST)/requirements.txt -c $(OLDEST)/indirect.txt -e . \
	  beartype hypothesis psutil pytest pytest-xdist
	$(OLD_PROCESSOR) $(OLDEST)/venv/bin/python -m pytest -q $(SIDE_BY_SIDE) -o filterwarnings=default -m "not slow" \
	  $(shell grep -LP 'reproduced(\.| import )(?!runtime)' $(NUMERICAL))

benchmark: $(READY) ## time our algorithms against the straightforward ones
	status=0; for name in min_norm blessing kkt_margin gradient_inversion polytopes audit peers growth; do \
	  $(BIN)/python benchmarks/$$name.py --record || status=1; \
	done; exit $$status

lab: $(READY) ## open the chapters in JupyterLab: copies with the last build's numbers, or their sources
	$(JUPYTER) $(BIN)/jupytext-config set-default-viewer
	folder=$$($(JUPYTER) $(BIN)/python -m reproduced.lab) && $(JUPYTER) $(ONE_THREAD) $(BIN)/jupyter lab \
	  --LabApp.default_url=/lab/tree/$$folder

serve: $(READY) ## serve the site at http://127.0.0.1:8000/
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/site/_build/html

lint: $(READY) ## check format, style, types and who imports what, of the chapters too
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports
	.ci/lint-chapters $(wildcard book/*.md)

# One lock for every Python and system: packages that only some need carry a marker, and no package has two versions.
lock: ## pin what pyproject.toml asks for; UPGRADE=1: the newest of everything (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest --no-header \
	  --no-annotate $(if $(UPGRADE),--upgrade) --output-file requirements.txt

clean: ## delete everything generated; the virtual environment stays
	rm -rf _build .pytest_cache .ruff_cache .hypothesis .jupyter

# pip need not compile all modules: Python compiles those that are imported, a third, at the first import.
$(READY): pyproject.toml requirements.txt
	@echo 'Packages are fetched into $(VENV); once, and it takes a few minutes.'
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install -q -c requirements.txt --no-deps --index-url "$(TORCH_INDEX)" torch)
	$(BIN)/python -m pip install -q --no-compile -c requirements.txt -e ".[test]"
	touch $@
