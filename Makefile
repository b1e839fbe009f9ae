# The README's two commands are `make demo` and `make test`; each makes .venv by itself.
# It needs Python >= 3.11 and make. Another Python: make PYTHON=/path/to/python test

PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14
WORKERS ?= 2
# constraints-lowest.txt has the lowest versions; make units CONSTRAINTS= installs the newest.
CONSTRAINTS ?= constraints.txt

VERSIONS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS),--upgrade --upgrade-strategy eager)
BIN := .venv/bin
STAMP := .venv/.installed
COMPARE_STAMP := .venv-compare/.installed
SMOKE := build/wheel-smoke
DIST := build/dist
CODE := $(sort $(patsubst %/,%,src tests $(dir $(wildcard examples/*.py benchmarks/*.py tools/*.py))))
# The tests of a file go to one worker, which makes what they share once. Each has torch's default
# threads, which sleep while they wait: those of busy processes spin for 18 times the CPU time.
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
OPTIONAL := jax keras mlx
SUITES_OF := $(BIN)/python -m tests.support.suites

export MPLBACKEND := Agg
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some containers set it. The tests start some hundred processes, which compile for 6 s without it.
unexport PYTHONDONTWRITEBYTECODE

# What `python -m tools` writes (drift prints, where the network allows), and the suites with a page.
PAGES := drift gallery frameworks notebooks trust theorems runtimes operators stubs
MEASURED := accuracy precision checker rocq transfer

.PHONY: help demo test lint format types doctests units proofs wheel-smoke dist golden framework \
  compare compare-status compare-web compare-torch compare-runtimes compare-hosts environments gpu \
  docs bench bench-check clean $(PAGES) $(MEASURED)
# Stages share .venv and build/; only `make test` runs those side by side that do not.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

help: ## this list
	@awk -F':.*## ' '/^[^\t#]+:.*## / { gsub(/[$$()]/, "", $$1); printf "make %-17s %s\n", $$1, $$2 }' Makefile
	@echo "PAGES: $(PAGES)"; echo "MEASURED: $(MEASURED)"

demo: $(STAMP) ## compile a real recipe and train with the exported graph (examples/demo.py)
	@$(BIN)/python examples/demo.py

# Each of the first stages uses one core. The longest come first; make 4 prints them one at a time.
test: $(STAMP) ## types, wheel-smoke, doctests, lint and proofs side by side, then units
	@$(MAKE) --no-print-directory -j$(WORKERS) $(if $(filter output-sync,$(.FEATURES)),-Otarget) \
	  SIDE_BY_SIDE=1 types wheel-smoke doctests lint proofs
	@$(MAKE) --no-print-directory units

lint: $(STAMP) ## ruff: rules and format
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE) || { $(BIN)/ruff format --check $(CODE); echo "mend it with: make format"; exit 1; }

format: $(STAMP) ## ruff: mend what it can, and format
	@$(BIN)/ruff check --quiet --fix $(CODE) || true
	@$(BIN)/ruff format $(CODE)

types: $(STAMP) ## mypy --strict
	@echo "== types"
	@$(BIN)/mypy $(CODE)

dist: $(STAMP) ## sdist and wheel, the same bytes from the same commit, into build/dist
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@$(BIN)/python tests/support/build_release.py $(DIST)

wheel-smoke: $(STAMP) ## build the wheel, install it without extras, and use it
	@echo "== wheel: build, install without extras in a fresh venv, use it"
	@rm -rf $(SMOKE) && mkdir -p $(SMOKE)
	@$(MAKE) --no-print-directory dist DIST=$(SMOKE)/dist
	@$(BIN)/python -m venv $(SMOKE)/venv
	@$(SMOKE)/venv/bin/python -I -m pip install -qq -c constraints.txt $(SMOKE)/dist/*.whl
	@cd $(SMOKE) && ../../$(BIN)/python ../../tests/wheel_smoke_files.py train
	@cd $(SMOKE) && venv/bin/python -I ../../tests/wheel_smoke.py

doctests: $(STAMP) ## the examples in the docstrings of src
	@echo "== doctests: the docstrings of src"
	@$(PYTEST) -n 0 -q --doctest-modules src/closedform \
	  --ignore=src/closedform/importers/optax $(OPTIONAL:%=--ignore-glob="src/closedform/exporters/%_*.py")

proofs: $(STAMP) ## closedform verify: proofs, each replayed by the checker
	@$(BIN)/closedform verify cosine --start 3e-4 --end 3e-5 --steps 1000
	@$(BIN)/closedform verify adamw

units: $(STAMP) ## pytest: tests, README, docs and examples
	@$(PYTEST) --durations=10 tests

golden: $(STAMP) ## rewrite tests/golden from what the code says now
	@$(PYTEST) tests --exhaustive --update-golden

framework: $(STAMP) ## every test of one framework: make framework NAME=litgpt
	@$(PYTEST) -n 0 -q tests/frameworks tests/recipes tests/analysis tests/test_as_implemented.py tests/test_frameworks_page.py -k "$(NAME) or $(subst .,_,$(subst -,_,$(NAME)))"

compare: $(STAMP) $(COMPARE_STAMP) ## the suites whose stored result is not fresh; make compare SUITES="training/zoo jax"
	@$(SUITES_OF) run --workers $(WORKERS) $(SUITES)

compare-status: $(STAMP) ## the stored results of all suites: fresh, stale, failed or never run
	@$(SUITES_OF) status $(SUITES)

accuracy precision: $(COMPARE_STAMP)
$(MEASURED): $(STAMP) ## measure, and rewrite the page of the figures
	@$(SUITES_OF) run $@

compare-runtimes: $(STAMP) $(COMPARE_STAMP) ## every back end, and files in other runtimes; docs/runtimes.md
	@$(SUITES_OF) run backends runtimes

compare-torch: $(STAMP) ## the suites of torch beside the drop-ins
	@$(SUITES_OF) run torch-tests

compare-web: $(STAMP) ## training and the gallery in Node and headless Chromium
	@tools/node_packages.sh web && $(SUITES_OF) run browser webgpu

compare-hosts: $(STAMP) ## training in C and in Node, with onnxruntime's own API
	@tools/node_packages.sh hosts && $(SUITES_OF) run hosts

environments: $(STAMP) ## the tests with the core install, the lowest and the newest versions; NAMES=core runs one
	@$(BIN)/python -m tests.support.environments --workers $(WORKERS) $(NAMES)
	@$(BIN)/python -m tools environments

$(PAGES): $(STAMP) ## rewrite the page from the code or the stored results; review it with git diff
	@$(BIN)/python -m tools $@

gpu: ## optimizer steps on one CUDA GPU, with the python3 of the machine; docs/cuda_graphs.md
	@PYTHONPATH=src:. python3 -m benchmarks.gpu; status=$$?; python3 -m tools gpu; exit $$status

docs: $(STAMP) ## the site, into build/site; a broken link or a warning is an error
	@$(BIN)/python -m pip install -qq -e ".[docs]" $(VERSIONS)
	@tools/node_packages.sh site
	@$(BIN)/python -m tools architecture && NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(STAMP) $(COMPARE_STAMP) ## every script of benchmarks/; writes benchmarks/RESULTS.md
	@nice -n 5 $(BIN)/python -m benchmarks

bench-check: $(STAMP) $(COMPARE_STAMP) ## the benchmarks again; a ratio beyond the noise of the stored one is an error
	@nice -n 5 $(BIN)/python -m benchmarks.check

clean: ## remove .venv, .venv-compare, build outputs and caches
	@rm -rf .venv .venv-compare build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find src tests examples benchmarks tools -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@tools/make_environment.sh $(PYTHON)
	@echo "== setup: install closedform[dev] with $(if $(CONSTRAINTS),the versions of $(CONSTRAINTS),the newest versions)"
	@$(BIN)/python -m pip install -qq -e ".[dev]" $(VERSIONS)
	@touch $@

$(COMPARE_STAMP): $(STAMP) tests/recipes/compare_requirements.txt
	@tools/make_compare_environment.sh
