# Steelyard: `make bench` gives a first table from a fresh clone, `make test` checks everything.

SHELL = /bin/bash
PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints/base.txt -c constraints/torch.txt
CODE = src tests benchmarks scripts examples
PINS = pyproject.toml constraints/base.txt constraints/torch.txt
SITE = build/site

.PHONY: help bench test test-deep test-stacks test-farm benchmarks powercurve docs site clean compiler

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r name words; do printf '  make %-12s %s\n' "$$name" "$$words"; done

bench: compiler $(VENV)/.for-bench  ## install Steelyard with torch into .venv, run the quickstart suite, write report.html
	@code=0; $(BIN)/steelyard run quickstart || code=$$?; \
	case $$code in 0|3|5) $(BIN)/steelyard report -o report.html || code=$$((code ? code : $$?));; esac; exit $$code

test: compiler $(VENV)/.for-test  ## lint, types, import rules and all tests
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	@scripts/chromium.sh
	@rm -f .pytest_cache/v/cache/lastfailed
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not deep and not stacks and not gpu and not farm' || \
	  { [ $$? = 1 ] && scripts/again.sh $(BIN); }

test-deep: compiler $(VENV)/.for-test $(VENV)/.for-site  ## more of the same, for longer: kills at more moments, more nights, our benchmarks from start to end
	$(BIN)/pytest -m deep

test-stacks: compiler $(VENV)/.for-test  ## tests that build other frameworks' environments (downloads gigabytes)
	$(BIN)/pytest -m stacks

test-farm: compiler $(VENV)/.for-test  ## runs on real clusters of this machine: Slurm, Ray, sshd (as root installs them), with kills at random moments
	@scripts/farm/install.sh $(BIN)/python
	$(BIN)/pytest -m farm

benchmarks: compiler $(VENV)/.for-test  ## Steelyard's own benchmarks: isolation, overhead, start-up
	@for name in startup overhead isolation; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

powercurve: compiler $(VENV)/.for-test  ## twenty more minutes of comparisons for the power curve, and what all of them say
	$(BIN)/python -m benchmarks.powercurve collect --minutes 20
	$(BIN)/python -m benchmarks.powercurve score

docs: $(VENV)/.for-bench  ## write the generated pages of docs/reference again
	$(BIN)/python scripts/reference.py

site: $(VENV)/.for-site  ## build the documentation as a site that works offline, in build/site; a broken link is an error
	$(BIN)/python -m sphinx -q -E -W --keep-going -c scripts/site -d build/site-trees . $(SITE)
	@echo "wrote $(SITE)/index.html"

clean:  ## remove .venv and every cache; saved runs in .steelyard stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

compiler:
	@command -v "$${CXX:-g++}" >/dev/null || { \
	  echo "error: no C++ compiler: $${CXX:-g++} is not on PATH, and torch.compile needs one" >&2; \
	  echo "  install it: apt-get install g++   (Fedora: dnf install gcc-c++), or name another: make CXX=clang++ …" >&2; exit 1; }

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "error: there is no $(PYTHON)" >&2; \
	  echo "  install Python 3.11 or newer, or name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is $$("$(PYTHON)" --version 2>&1); Steelyard needs Python 3.11 or newer" >&2; \
	  echo "  name a newer one: make PYTHON=python3.12 …" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments: its module venv or ensurepip is missing" >&2; \
	  echo "  install it: apt-get install python3-venv" >&2; exit 1; }
	rm -rf $(VENV)
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.for-bench: $(PINS) | $(BIN)/python
	$(PIP) -e '.[torch]'
	@touch $@

$(VENV)/.for-test: $(PINS) | $(BIN)/python
	$(PIP) -e '.[torch,test]'
	@touch $@ $(VENV)/.for-bench

$(VENV)/.for-site: pyproject.toml constraints/base.txt constraints/docs.txt | $(BIN)/python
	$(PIP) -c constraints/docs.txt -e '.[docs]'
	@touch $@
