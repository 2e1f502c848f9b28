# `make run` starts everything, `make test` tests everything; both set up first. `make help` lists the rest.

# Any Python from 3.11 to 3.13: make setup PYTHON=/path/to/python
SUPPORTED = import sys; (3, 11) <= sys.version_info[:2] < (3, 14) or sys.exit(1)
ifndef PYTHON
PYTHON = $(eval PYTHON := $(or $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(if $(shell $(name) -c '$(SUPPORTED)' 2>/dev/null && echo yes),$(name)))),python3))$(PYTHON)
endif
WHICH_PYTHON = Install Python 3.11, 3.12 or 3.13, or name one: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python

# With an NVIDIA driver, TensorFlow comes with its CUDA libraries. `make setup CUDA=no` leaves them out, CUDA=yes adds them.
CUDA := $(or $(CUDA),$(shell { test -e /proc/driver/nvidia/version || nvidia-smi -L; } >/dev/null 2>&1 && echo yes || echo no))
WITH_CUDA := $(if $(filter yes,$(CUDA)),yes)

VENV := .venv
IN_VENV := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed-cuda-$(CUDA)
SLOWEST := --durations=15 --durations-min=1
# Most tests wait, or use one core: two files at a time, in the order that tests/conftest.py gives them. Three keep both
# cores busy and are not done sooner, and starve those that have a deadline.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
# The files of the tests that run alone: importing all the others takes longer than some of these tests.
WITH_ALONE = $(shell grep -rl --include='test_*.py' 'mark\.alone' tests)

.PHONY: help setup run test unit check format bench clean

help:  ## Lists the targets.
	@sed -n 's/^\([a-z]*\):.*## /make \1	/p' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALLED)  ## Makes .venv and installs the pinned packages into it; once, and again when they change.

$(INSTALLED): requirements.txt constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "There is no $(PYTHON). $(WHICH_PYTHON)" >&2; exit 2; }
	@$(PYTHON) -c '$(SUPPORTED)' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), which is not supported. $(WHICH_PYTHON)" >&2; exit 2; }
	@$(IN_VENV) -c '$(SUPPORTED); import pip' 2>/dev/null || \
	  { echo "Making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv --clear $(VENV); } || \
	  { echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing the pinned packages into $(VENV). The first time this downloads" \
	  "$(if $(WITH_CUDA),several GB (CUDA libraries are among them),about 1 GB) and takes some minutes."
	@$(IN_VENV) -m pip install --disable-pip-version-check -r requirements.txt -c constraints.txt \
	  $(if $(WITH_CUDA),"$$(sed -n 's/^tensorflow==/tensorflow[and-cuda]==/p' requirements.txt)")
	@rm -f $(VENV)/.installed-*
	@touch $@
	@echo "Set up: $$($(IN_VENV) --version) in $(VENV), $(if $(WITH_CUDA),with,without) CUDA libraries."

run: setup  ## Starts MLflow, Ray, the controller and the page, and prints the address. Ctrl-C ends it all.
	@exec $(IN_VENV) -m experiments.serve

test: setup  ## Runs every test: most side by side, then those that need the machine for themselves.
	@failed=0; \
	$(IN_VENV) -m pytest $(SLOWEST) $(SIDE_BY_SIDE) -m "not alone" || failed=1; \
	$(IN_VENV) -m pytest $(SLOWEST) -m alone $(WITH_ALONE) || failed=1; \
	exit $$failed

unit: setup  ## Runs the quick tests only.
	$(IN_VENV) -m pytest $(SLOWEST) $(SIDE_BY_SIDE) -m "not slow and not browser and not alone"

check: setup  ## What CI checks besides the tests: packages, format, lint, types, borders.
	$(IN_VENV) -m pip check
	$(IN_VENV) -m ruff format --check .
	$(IN_VENV) -m ruff check .
	$(IN_VENV) -m mypy
	$(VENV)/bin/lint-imports --no-cache

format: setup  ## Formats the code and mends what the linter can.
	$(IN_VENV) -m ruff format .
	$(IN_VENV) -m ruff check --fix .

bench: setup  ## Measures the speed figures of the README, side by side.
	$(IN_VENV) -m tests.benchmarks

clean:  ## Removes caches. Runs and their records (.speedup-lab) and .venv stay.
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
