# Criticizer: every target sets up what it needs, then works.
# Only Python 3.11+, git, make and (for what is missing) Debian's packages are assumed.

PYTHON  ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
             $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PORT    ?= 8000
HOST    ?= 127.0.0.1
HOSTS   ?= 4
REPO    ?=
JOBS    ?= 200
FAULTS  ?= 40
SEED    ?= 1
DELIVERIES ?= 10000
POINTS  ?= 16
# The floor of lines and branches, in percent. Set here: with pyproject.toml each part of the run would have to reach it.
COVERAGE := 93
VENV    := .venv
BIN     := $(VENV)/bin
PEERS   := $(VENV)-peers
export PYTHONUNBUFFERED := 1
# Compiled modules are kept, also where the environment says otherwise: clusters and commands start faster.
export PYTHONDONTWRITEBYTECODE :=
ifdef DATA_DIR
export CRITICIZER_DATA_DIR := $(abspath $(DATA_DIR))
endif

.PHONY: help demo up test test-all check bench peers drill cluster-drill restore-drill matrix lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   review two commits with recorded answers (REPO=/path: your repository; KEEP=1: stays up; PORT=8000)"
	@echo "make up     run web, workers and database until Ctrl-C (PORT=8000 DATA_DIR=var)"
	@echo "make test   what a contributor needs: checks and the test suite, browser tests included"
	@echo "make test-all  make test, the long proofs, and branch coverage with its floor (nightly)"
	@echo "make check  format, lint, types, imports, migrations, deployment checks"
	@echo "make bench  the benchmarks, with their peers, one JSON line a figure"
	@echo "make matrix kill workers at every statement of a delivery, by provider; DELIVERIES=10000 under random kills"
	@echo "make cluster-drill  the same over HOSTS=4 machines with a replicated database, as root (JOBS= FAULTS= SEED= ASYNCHRONOUS=1)"
	@echo "make restore-drill  lose a machine with its database, restore it on an empty one (JOBS=200 SEED=1)"
	@echo "make drill  break a running installation FAULTS=40 times under JOBS=200 jobs (SEED=1), then compare the books"

demo: $(VENV)/base
	@$(BIN)/python manage.py demo $(if $(filter command environment,$(origin PORT)),--port "$(PORT)") $(if $(REPO),--repo "$(REPO)") $(if $(filter-out 0 no false,$(KEEP)),--keep)

up: $(VENV)/base
	@$(BIN)/python manage.py up --show-login --host "$(HOST)" --port "$(PORT)"

test: $(VENV)/dev check
	@.ci/browser
	@.ci/imap
	@# Tests that start clusters run apart from those that load every core, and those of a file in one process:
	@# they share an installation. Status 5: none was chosen.
	$(BIN)/python -m pytest -n auto --maxprocesses 5 -m "not cluster and not long" $(PYTEST_ARGS) || [ $$? = 5 ]
	$(BIN)/python -m pytest -n auto --maxprocesses 5 --dist loadscope --no-loadscope-reorder -m "cluster and not long" $(PYTEST_ARGS) || [ $$? = 5 ]

# Everything, for a nightly job: long proofs too, branch coverage with its floor, slices of drill and matrix.
test-all: $(VENV)/nightly check
	@.ci/browser
	@.ci/imap
	@.ci/emulator
	CRITICIZER_TEST_RUN=all $(BIN)/python -m pytest -n auto --maxprocesses 5 -m "not cluster" --cov --cov-report= $(PYTEST_ARGS)
	CRITICIZER_TEST_RUN=all $(BIN)/python -m pytest -m cluster --cov --cov-append --cov-report= $(PYTEST_ARGS)
	@$(BIN)/coverage report --skip-covered --sort=cover | tail -40
	$(BIN)/coverage report --format=total --fail-under=$(COVERAGE)
	$(MAKE) drill JOBS=200 FAULTS=40
	$(MAKE) matrix POINTS=3 DELIVERIES=500

CHECKS := check-types check-style check-imports check-generated check-deployment
.PHONY: $(CHECKS)

check: $(VENV)/dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(CHECKS)

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-imports:
	$(BIN)/lint-imports --no-cache

check-generated:
	$(BIN)/python .ci/generated_check.py

check-deployment:
	$(BIN)/python .ci/deploy_check.py

bench: $(VENV)/bench peers
	@REDACTION_PEERS=$(PEERS)/bin/python $(BIN)/python -m benchmarks

# Scanners for secrets and the models they bring do not share an environment with the product.
peers: $(PEERS)/made

$(PEERS)/made: requirements/peers.txt
	@.ci/venv "$(PYTHON)" $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

drill: $(VENV)/dev
	@$(BIN)/python -m benchmarks.drill --jobs "$(JOBS)" --faults "$(FAULTS)" --seed "$(SEED)"

# As root: machines are network namespaces. Status 3, with one sentence, where they cannot be made.
cluster-drill: $(VENV)/nightly
	@$(BIN)/python -m benchmarks.cluster_drill --hosts "$(HOSTS)" --jobs "$(JOBS)" --faults "$(FAULTS)" --seed "$(SEED)"$(if $(ASYNCHRONOUS), --asynchronous)

restore-drill: $(VENV)/dev
	@$(BIN)/python -m benchmarks.restore_drill --jobs "$(JOBS)" --seed "$(SEED)"

matrix: $(VENV)/dev
	@.ci/imap
	@$(BIN)/python -m benchmarks.matrix --points "$(POINTS)" --deliveries "$(DELIVERIES)" --seed "$(SEED)"

# The lock files name no package index; pip's own configuration decides where packages come from.
$(VENV)/base $(VENV)/dev $(VENV)/bench $(VENV)/nightly: $(VENV)/%: requirements/%.txt | $(VENV)/made
	@echo "Installing $< ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/made:
	@.ci/venv "$(PYTHON)" $(VENV)
	@touch $@

lock: $(VENV)/made
	$(BIN)/python -m pip install --quiet uv
	.ci/lock $(BIN)/uv

clean:
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis
