# make demo              install everything, train, export, run in Lava, verify, fit, report;
#                        MODEL=digits-4bit takes a trained network of examples/models instead
# make test              the whole test suite
# make lint              formatting, lint, types, layers of imports
# make coverage          the suite again, with the lines that it reaches; fails below the floor
# make docs              the documentation as a site, build/site/index.html; warnings are errors
# make results           measure again the tables of docs/results that need no more than this machine; resumable
# make test-mcu          the C program of the digits example on four microcontrollers in QEMU, where those are installed
# make tools             install what tests of FPGAs and of Xylo run if it is there: yosys, nextpnr, xylosim, Rockpool
# make witnesses         install SANA-FE beside it, in .venv-witnesses: name it with SANA_FE_PYTHON
# make smoke             build the source archive and the wheel, install it into an empty environment, try it there
# make update-golden     write what the commands print to tests/golden, to be read in the diff
# make test-all-pythons  the suite on every Python 3.10 to 3.13 that is found
#
# PYTHON=python3.12 chooses another interpreter, WORKERS=4 how many processes share the tests, and
# HYPOTHESIS_PROFILE=long how many examples a law is tried on (ci, dev, long). All are quick the second time.

# Tests start many processes, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Memory that a test frees is kept for the next one, and comes in large pages: fresh pages, and forks that copy the
# tables of many small ones, are slow on virtual machines.
export GLIBC_TUNABLES = glibc.malloc.hugetlb=1
export MALLOC_MMAP_THRESHOLD_ = 1073741824
export MALLOC_TRIM_THRESHOLD_ = 2147483647

PYTHON ?= python3
VENV ?= .venv
# One more than the cores of a small machine: tests of clusters, signals and other processes wait most of the time.
WORKERS ?= 3

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(VERSION)
PIP := $(BIN)/python -m pip --disable-pip-version-check

# A process takes one file after another, the longest first (tests/conftest.py), so that each fixture is made once.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Percent of the lines that the suite must reach. From 3.12 on Python itself reports them, which is faster.
FLOOR := 97
COVERAGE := $(if $(filter 3.12 3.13,$(VERSION)),COVERAGE_CORE=sysmon) $(PYTEST) --cov --cov-fail-under=$(FLOOR)

.PHONY: demo test-mcu tools witnesses test lint format coverage smoke docs results update-golden install test-all-pythons clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py demo $(if $(MODEL),--model $(MODEL)) $(if $(DATA_DIR),--data-dir $(DATA_DIR))

test: $(STAMP)
	$(PYTEST)

coverage: $(STAMP)
	$(COVERAGE)

docs: $(STAMP)
	$(BIN)/python .ci/docs/build.py

test-mcu: $(STAMP)
	$(BIN)/python .ci/mcu.py

results: $(STAMP)
	$(BIN)/python benchmarks/results.py

# BORROW=1 takes the packages that it needs from $(VENV) instead of downloading them.
smoke: $(STAMP)
	rm -rf build/smoke
	$(BIN)/python .ci/smoke.py build/smoke $(if $(BORROW),--borrow)

update-golden: $(STAMP)
	$(BIN)/python -m pytest tests/golden --update-golden

# On Python 3.10, Lava keeps torch at 2.3, many of whose functions have no types yet.
lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(if $(filter 3.10,$(VERSION)),,$(BIN)/mypy)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(STAMP)

# requirements.txt lists all that is needed, with hashes (.ci/pin.py), so nothing is resolved, and no other file is
# taken. Wheels only, except for norse, which has none. Lava declares Python 3.10 only, and works on newer ones.
# torch has builds for processors on an index of its own; its version is pinned in constraints.txt.
$(STAMP): pyproject.toml constraints.txt requirements.txt
	@case "$(VERSION)" in 3.10|3.11|3.12|3.13) ;; *) \
	  echo "$(PYTHON) is Python '$(VERSION)'; choose 3.10, 3.11, 3.12 or 3.13 with PYTHON=..." >&2; exit 2;; esac
	@ls $(STAMP) >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes --no-deps --ignore-requires-python --only-binary :all: --no-binary norse \
	  --requirement requirements.txt
	$(PIP) install --quiet --constraint constraints.txt torch $(if $(filter 3.10,$(VERSION)),torchvision)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# xylosim and Rockpool come as source archives, and are built.
tools: $(STAMP)
	$(PIP) install --quiet --require-hashes --no-deps --requirement requirements-tools.txt

# The simulator SANA-FE, whose license is the GPL, in an environment that nothing else shares.
witnesses:
	@test -x .venv-witnesses/bin/python || $(PYTHON) -m venv .venv-witnesses
	.venv-witnesses/bin/python -m pip --disable-pip-version-check install --quiet sanafe==2.2.9 numpy

test-all-pythons:
	@for minor in 3.10 3.11 3.12 3.13; do \
	  found=""; \
	  for candidate in python$$minor "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$minor.*/bin/python; do \
	    if [ -z "$$found" ] && "$$candidate" -c 'import sys; assert "%d.%d" % sys.version_info[:2] == "'$$minor'"' \
	      2>/dev/null; then found="$$candidate"; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "Python $$minor: not found, not tested"; continue; fi; \
	  echo "Python $$minor: $$found"; \
	  $(MAKE) --no-print-directory test PYTHON="$$found" VENV=.venv-$$minor || exit 1; \
	done

clean:
	rm -rf .venv .venv-* .coverage build demo
