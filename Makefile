# Two commands do everything: `make book` and `make test`. The rest is comfort.
PROFILE ?= ci
SEED ?= 0
JOBS ?=
CHAPTERS ?=
VENV ?= .venv
PYTHON ?= python3

.PHONY: book test lab serve lint lock clean

$(VENV)/.ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q -c requirements.lock -e ".[test]"
	touch $@
