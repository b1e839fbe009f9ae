# The README's two commands are `make demo` and `make test`; each makes .venv by itself.
# It needs Python >= 3.11 and make. Another Python: make PYTHON=/path/to/python test

PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14
WORKERS ?= 2
# constraints-lowest.txt installs the lowest versions that pyproject.toml admits, an empty value
# (make units CONSTRAINTS=) the newest.
CONSTRAINTS ?= constraints.txt

VERSIONS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS),--upgrade --upgrade-strategy eager)
BIN := .venv/bin
STAMP := .venv/.installed
COMPARE := .venv-compare/bin
COMPARE_STAMP := .venv-compare/.installed
SMOKE := build/wheel-smoke
DIST := build/dist
CODE := $(sort $(patsubst %/,%,src tests $(dir $(wildcard examples/*.py benchmarks/*.py tools/*.py))))
# One thread a worker: two workers that each start a thread per core slow each other down. The tests
# of a file go to one worker, which makes what they share once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

export MPLBACKEND := Agg
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some containers set it. The tests start some hundred processes, and to compile all modules of the
# package takes 6 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo stubs test lint format types doctests units proofs wheel-smoke dist golden gallery frameworks notebooks trust theorems compare compare-status environments compare-web compare-torch docs bench bench-check clean runtimes compare-runtimes compare-hosts operators accuracy transfer precision rocq checker
# Stages share .venv and build/; only `make test` runs those side by side that do not.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

help:
	@echo "make demo         compile a real recipe and train with the exported graph (examples/demo.py)"
	@echo "make test         types, wheel-smoke, doctests, lint and proofs side by side, then units"
	@echo "make lint         ruff: rules and format"
	@echo "make format       ruff: mend what it can, and format"
	@echo "make types        mypy --strict"
	@echo "make wheel-smoke  build the wheel, install it without extras, and use it"
	@echo "make dist         sdist and wheel, the same bytes from the same commit, into build/dist"
	@echo "make doctests     the examples in the docstrings of src"
	@echo "make units        pytest: tests, README, docs and examples"
	@echo "make proofs       closedform verify --check: proofs replayed by the second checker"
	@echo "make golden       rewrite tests/golden from what the code says now"
	@echo "make gallery      rewrite docs/gallery.md and its plots from the code"
	@echo "make frameworks   rewrite docs/frameworks.md, its plot and docs/frameworks/ from the code"
	@echo "make notebooks    run docs/notebooks and store the outputs"
	@echo "make trust        rewrite the figures of docs/limits_and_trust.md"
	@echo "make theorems     rewrite docs/theorems.md from its tables, by the prover"
	@echo "make compare      the library beside the reference values and the installed packages; SUITES=..."
	@echo "make compare-status  the stored results of all suites: fresh, stale, failed or never run"
	@echo "make compare-torch  the suites of torch beside the drop-ins"
	@echo "make compare-runtimes  every back end, and the files in old and other runtimes; rewrites docs/runtimes.md"
	@echo "make checker      proofs of all proved goals, replayed by the second checker; rewrites the table of docs/verification.md"
	@echo "make rocq         proofs of all verdicts, checked by Rocq; rewrites the table of docs/verification.md"
	@echo "make runtimes     rewrite docs/runtimes.md from the stored results"
	@echo "make accuracy     measure schedules and updates in every back end; rewrites docs/accuracy.md"
	@echo "make transfer     train models of several widths with µP and without; rewrites docs/scaling.md"
	@echo "make precision    train with parameters in bfloat16; rewrites the table of docs/low_precision.md"
	@echo "make operators    rewrite docs/training_operators.md from the stored results"
	@echo "make environments the tests with the core install, the lowest and the newest versions; docs/stability.md"
	@echo "make compare-web  training and the gallery in Node and headless Chromium"
	@echo "make compare-hosts  training in C and in Node, with onnxruntime's own API"
	@echo "make docs         the site, into build/site; a broken link or a warning is an error"
	@echo "make bench        every script of benchmarks/; writes benchmarks/RESULTS.md"
	@echo "make bench-check  the benchmarks again; a ratio worse than the stored one, beyond its noise, is an error"
	@echo "make clean        remove .venv, .venv-compare, build outputs and caches"

demo: $(STAMP)
	@echo "== demo: examples/demo.py"
	@$(BIN)/python examples/demo.py

# Each of the first stages uses one core. The longest come first; make 4 prints them one at a time.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j$(WORKERS) $(if $(filter output-sync,$(.FEATURES)),-Otarget) \
	  SIDE_BY_SIDE=1 types wheel-smoke doctests lint proofs
	@$(MAKE) --no-print-directory units

lint: $(STAMP)
	@echo "== lint: ruff check"
	@$(BIN)/ruff check --quiet $(CODE)
	@echo "== lint: ruff format --check"
	@$(BIN)/ruff format --quiet --check $(CODE) \
	  || { $(BIN)/ruff format --check $(CODE); echo "mend it with: make format"; exit 1; }

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix $(CODE) || true
	@$(BIN)/ruff format $(CODE)

types: $(STAMP)
	@echo "== types: mypy --strict $(CODE)"
	@$(BIN)/mypy $(CODE)

dist: $(STAMP)
	@echo "== dist: sdist and wheel, into $(DIST)"
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@$(BIN)/python tests/support/build_release.py $(DIST)

wheel-smoke: $(STAMP)
	@echo "== wheel: build, install without extras in a fresh venv, use it"
	@rm -rf $(SMOKE) && mkdir -p $(SMOKE)
	@$(MAKE) --no-print-directory dist DIST=$(SMOKE)/dist
	@$(BIN)/python -m venv $(SMOKE)/venv
	@$(SMOKE)/venv/bin/python -I -m pip install -qq -c constraints.txt $(SMOKE)/dist/*.whl
	@cd $(SMOKE) && ../../$(BIN)/python ../../tests/wheel_smoke_files.py train
	@cd $(SMOKE) && venv/bin/python -I ../../tests/wheel_smoke.py

doctests: $(STAMP)
	@echo "== doctests: the docstrings of src"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --doctest-modules src/closedform \
	  --ignore=src/closedform/importers/optax --ignore-glob="src/closedform/exporters/jax_*.py" \
	  --ignore-glob="src/closedform/exporters/keras_*.py" \
	  --ignore-glob="src/closedform/exporters/mlx_*.py"

proofs: $(STAMP)
	@echo "== proofs: closedform verify --check, the proofs replayed by the second checker"
	@$(BIN)/closedform verify cosine --start 3e-4 --end 3e-5 --steps 1000 --check
	@$(BIN)/closedform verify adamw --check

units: $(STAMP)
	@echo "== tests: units, architecture, README, docs, examples; make compare runs every case"
	@$(PYTEST) --durations=10 tests

golden: $(STAMP)
	@echo "== golden: rewrite tests/golden; review the change with git diff"
	@$(PYTEST) tests --exhaustive --update-golden

# Those whose stored result is not fresh; make compare SUITES="zoo optax" runs these in any case.
SUITES ?=
compare: $(STAMP) $(COMPARE_STAMP)
	@$(BIN)/python -m tests.support.suites run --workers $(WORKERS) $(SUITES)

compare-status: $(STAMP)
	@$(BIN)/python -m tests.support.suites status $(SUITES)

accuracy precision: $(COMPARE_STAMP)
accuracy precision checker rocq transfer: $(STAMP)
	@$(BIN)/python -m tests.support.suites run $@

# Virtual environments below build/environments; make environments NAMES=core runs one.
NAMES ?=
environments: $(STAMP)
	@$(BIN)/python -m tests.support.environments --workers $(WORKERS) $(NAMES)
	@$(BIN)/python -m tools.build_environments

gallery: $(STAMP)
	@echo "== gallery: rewrite docs/gallery.md; review the change with git diff"
	@$(BIN)/python -m tools.build_gallery

frameworks: $(STAMP)
	@echo "== frameworks: rewrite docs/frameworks.md; review the change with git diff"
	@$(BIN)/python -m tools.build_frameworks

notebooks: $(STAMP)
	@echo "== notebooks: run docs/notebooks and store the outputs; review the change with git diff"
	@$(BIN)/python -m tools.run_notebooks

trust: $(STAMP)
	@echo "== trust: rewrite the figures of docs/limits_and_trust.md"
	@$(BIN)/python -m tools.build_trust

stubs: $(STAMP)
	@echo "== stubs: rewrite the types of the generated classes of closedform.torch"
	@$(BIN)/python -m tools.build_stubs

theorems: $(STAMP)
	@echo "== theorems: rewrite docs/theorems.md; review the change with git diff"
	@$(BIN)/python -m tools.theorems

runtimes: $(STAMP)
	@echo "== runtimes: rewrite docs/runtimes.md; review the change with git diff"
	@$(BIN)/python -m tools.build_runtimes

operators: $(STAMP)
	@echo "== operators: rewrite docs/training_operators.md; review the change with git diff"
	@$(BIN)/python -m tools.build_training_operators

# With the Python of the machine: nothing is installed.
gpu:
	@echo "== gpu: optimizer steps on one CUDA GPU, next to torch; docs/gpu.md"
	@PYTHONPATH=src:. python3 -m benchmarks.gpu; status=$$?; python3 -m tools.build_gpu; \
	  exit $$status

compare-runtimes: $(STAMP) $(COMPARE_STAMP)
	@$(BIN)/python -m tests.support.suites run backends runtimes

compare-torch: $(STAMP)
	@$(BIN)/python -m tests.support.suites run torch-tests

compare-web: $(STAMP)
	@echo "== compare-web: training and the gallery in Node and Chromium (needs node, npm, chromium)"
	@mkdir -p build/web && cd build/web && npm install --silent --no-fund --no-audit --ignore-scripts \
	  --prefix . onnxruntime-web@1.30 katex@0.19 playwright-core@1.65
	@$(BIN)/python -m tests.support.suites run browser webgpu

# The headers of onnxruntime's C API are those of a package for Unity: 150 MB, once. Its library is
# that of the wheel.
HEADERS := com.github.asus4.onnxruntime
compare-hosts: $(STAMP)
	@echo "== compare-hosts: training in C and in Node (needs a C compiler, node, npm)"
	@mkdir -p build/hosts/include && cd build/hosts && npm install --silent --no-fund --no-audit \
	  --ignore-scripts --prefix . onnxruntime-node@1.30
	@cd build/hosts && if [ ! -f include/onnxruntime_c_api.h ]; then \
	  npm pack --silent $(HEADERS)@0.4.9 >/dev/null && tar -xzf $(HEADERS)-0.4.9.tgz -C include \
	    --strip-components=7 "package/Plugins/iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/Headers" \
	  && rm $(HEADERS)-0.4.9.tgz; fi
	@$(BIN)/python -m tests.support.suites run hosts

docs: $(STAMP)
	@echo "== docs: the site, strictly"
	@$(BIN)/python -m pip install -qq -e ".[docs]" $(VERSIONS)
	@mkdir -p build/web && cd build/web && if command -v npm > /dev/null; then \
	  npm install --silent --no-fund --no-audit --ignore-scripts --prefix . katex@0.19; \
	  else echo "no npm: the site loads KaTeX from unpkg.com"; fi
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(STAMP) $(COMPARE_STAMP)
	@echo "== bench: beside their peers; writes benchmarks/RESULTS.md"
	@nice -n 5 $(BIN)/python -m benchmarks

bench-check: $(STAMP) $(COMPARE_STAMP)
	@echo "== bench-check: ratios beside those of benchmarks/RESULTS.md"
	@nice -n 5 $(BIN)/python -m benchmarks.check

clean:
	@rm -rf .venv .venv-compare build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@if $(BIN)/python -c "" 2>/dev/null; then exit 0; fi; \
	for python in $(PYTHON); do \
	  if $$python -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; \
	  then echo "== setup: .venv with $$($$python -V), a few minutes the first time"; \
	    exec $$python -m venv --clear .venv; fi; \
	done; \
	echo "closedform needs Python >= 3.11 with its venv module; looked for: $(PYTHON)" >&2; \
	for python in $(PYTHON); do \
	  if version=$$($$python -V 2>&1); then echo "  $$python is $$version" >&2; fi; \
	done; \
	echo "Install one (Debian: apt-get install python3 python3-venv) or name one:" \
	  "make PYTHON=/path/to/python test" >&2; \
	exit 1
	@echo "== setup: install closedform[dev] with $(if $(CONSTRAINTS),the versions of $(CONSTRAINTS),the newest versions)"
	@$(BIN)/python -m pip install -qq -e ".[dev]" $(VERSIONS)
	@touch $@

# timm without what it asks for: its schedulers need torch alone, its models torchvision, whose wheel
# needs the CUDA build of torch. ExecuTorch without its converters of models for other devices.
$(COMPARE_STAMP): $(STAMP) tests/recipes/compare_requirements.txt tests/verify/compare_requirements.txt
	@echo "== setup: .venv-compare with torch, transformers, timm, optax, jax and mlx, a few minutes"
	@$(BIN)/python -m venv --clear .venv-compare
	@$(COMPARE)/python -m pip install -qq -e . -r tests/recipes/compare_requirements.txt \
	  -r tests/verify/compare_requirements.txt -c constraints.txt
	@$(COMPARE)/python -m pip install -qq --no-deps timm==1.0.31 pytorch_optimizer==4.1.0 mup==1.0.0 \
	  torchao==0.18.0 executorch==1.5.1 flatbuffers parameterized ruamel.yaml tabulate
	@touch $@
