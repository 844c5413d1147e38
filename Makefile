.PHONY: help demo check test e2e soak bench format build
SETUP := @.ci/setup
PYTHON := .venv/bin/python

help:    ## this list
	@grep -hE '^[a-z0-9]+: .*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

demo:    ## train on real text, be taken away three times, prove the end is the same (3 min)
	$(SETUP) demo
	@$(PYTHON) docs/demo/demo.py

check:   ## lint, types, import contracts
	$(SETUP) check
	.ci/check

test: check ## everything CI runs: check, then the tests, fast ones first
	$(SETUP) test
	$(PYTHON) -m pytest -x tests/test_*.py tests/objects tests/store tests/staging tests/agent tests/train tests/ranks tests/dcp tests/fault tests/e2e

e2e:     ## real machines: systemd and cloud-init from pasted user-data; MACHINE=qemu: a full virtual one, slow
	$(SETUP) test
	$(PYTHON) -m pytest $(if $(MACHINE),tests/e2e/in_$(MACHINE).py,tests/e2e)

soak:    ## the long forms of the fault tests, with their counts (an hour; SEED=n repeats one)
	$(SETUP) test
	PYTHONPATH=tests $(PYTHON) tests/fault/kills.py --trainer 100 --agent 50 --both 50 $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/ranks/kills.py --kills 60 $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/fault/effects.py $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/fault/chaos.py --runs 15 $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/fault/races.py --rounds 200 $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/fault/long_life.py --saves 3000 $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(PYTHON) tests/fault/decision.py --checkpoints 10000
	$(PYTHON) tests/fault/fuzz.py --runs 50000 $(if $(SEED),--seed $(SEED))

bench:   ## what a save costs and how fast a run is back, beside what people use today (CASES=quick: 3 min)
	$(SETUP) bench
	PYTHONPATH=tests $(PYTHON) docs/bench/bench.py
	$(PYTHON) docs/bench/watcher.py
	PYTHONPATH=tests $(PYTHON) docs/bench/transfer.py $(if $(filter quick,$(CASES)),--megabytes 256 --rounds 2)

format:  ## rewrite the code in the one style
	$(SETUP) check
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

build:   ## sdist and wheel into dist/
	$(SETUP) check
	$(PYTHON) -m build
