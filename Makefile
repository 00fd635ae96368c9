# The two commands: `make demo` and `make test`. Everything they need they install: Python packages into .venv, heavy
# things (Go binaries, images, a JRE if none is found) into $(KUBOTHEK_CACHE), outside the checkout.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export KUBOTHEK_CACHE ?= $(HOME)/.cache/kubothek
# Where it is set, each of the hundreds of processes below would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo demo-cluster test check lint unit soak chaos bench bench-latency bench-operator cluster-up cluster-down images crds config pages pictures docs docs-release lock lock-images clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# The stamp carries a hash of what decides the environment, so a changed lock file or what is compiled installs and
# nothing else does.
INSTALL_KEY := $(shell cd operator && cat pyproject.toml constraints.txt hatch_build.py kubothek/storage/sha3_multibuffer.c | sha256sum | cut -c1-16)
STAMP := $(VENV)/.installed-$(INSTALL_KEY)

install: $(STAMP) ## .venv with kubothek and all it needs

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kubothek needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "installing into $(VENV) (1-3 minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@# Most of the 10,000 modules are never imported; the others are compiled when they are.
	@$(BIN)/pip install --quiet --no-compile --constraint operator/constraints.txt --editable 'operator[operator,engine,spark,tracing,mqtt,demo,test,bench]'
	@rm -f $(VENV)/.installed-*
	@touch $@

demo: install ## the main job on this machine: 336,776 flights committed by Spark and queried back
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

demo-cluster: install ## the same manifests on a real cluster with a real S3 server (kind, or a native node as root)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo-cluster.sh

test: install ## everything: lint, types, unit, Spark, S3 and cluster tests
	@bash .ci/test

check: install ## lint, types, unit tests: under a minute
	@$(MAKE) --no-print-directory --jobs=2 lint unit

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=operator $(BIN)/lint-imports

unit: install
	@bash .ci/pytest -q --numprocesses auto -m 'not cluster and not spark and not s3 and not slow'

soak: install ## 100,000 landed files with kills, random changes of random tables, 10,000 hostile requests, 200 commits and killed Spark programs on the cluster: an hour
	@KUBOTHEK_SOAK=1 $(BIN)/python -m pytest -q tests/fuzz tests/hostile tests/failures tests/plateau_conformance \
		tests/ingest/watch/test_exactly_once.py tests/properties tests/table/log tests/gc \
		tests/engines tests/cube tests/spark/test_killed.py tests/table/skipping tests/odf tests/protocol_model tests/odf/transform tests/odf/derived \
		tests/gateway/test_hostile.py tests/odf/sync/test_pull.py tests/cluster/test_operator.py tests/e2e/test_soak.py \
		tests/e2e/test_writers.py

chaos: install ## an hour of faults on the cluster, in the order of KUBOTHEK_SEED: what each was, and how long until all was calm
	@KUBOTHEK_SOAK=$${KUBOTHEK_SOAK:-1} $(BIN)/python -m pytest -q -s tests/e2e/test_chaos.py

bench: install ## Kubothek beside its peers, ratios in Markdown: an hour (benchmarks/README.md)
	@$(BIN)/python -m benchmarks

bench-latency: install ## from apply to Ready on the cluster, stage by stage, with and without drivers that wait: ten minutes
	@$(BIN)/python -m benchmarks latency

bench-operator: install ## the operator with 10,000 Datasets and 2,000 Commits beside kopf's handlers alone, in Markdown: 40 minutes
	@$(BIN)/python -m benchmarks.operator

cluster-up: install ## a real single-node Kubernetes with an S3 server (kind if Docker answers, else native, as root)
	@$(BIN)/python -m tests.testcluster up

cluster-down: install ## stop it and clean up
	@$(BIN)/python -m tests.testcluster down

images: install ## build the operator's and the jobs' images and load them into the cluster
	@$(BIN)/python -m tests.testcluster images

crds: install ## write crds/ (and the chart's copy) from the models
	@$(BIN)/python -m kubothek.api.crds

config: install ## write config/ (the chart as plain YAML) from charts/kubothek; builds Helm the first time, in minutes
	@$(BIN)/python -m tests.chart.plain

pictures: ## draw the pictures of docs/images from their sources (needs Node.js and npm)
	@npm install --silent --no-save --prefix .pictures @viz-js/viz@3.31.0
	@node docs/images/draw.mjs .pictures

pages: install ## write what in docs/ is made from the code: fields of the kinds, reasons
	@$(BIN)/python -m tests.pages

docs: install ## docs/ as a site in site/, with every link checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --site-dir site

# Releases are directories of the branch gh-pages. `latest` is the newest one, and where a visitor without a version goes.
docs-release: docs ## publish docs/ as the site of the version in operator/pyproject.toml, on the branch gh-pages of origin
	@export NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH"; \
	mike deploy --push --update-aliases "$$(sed -n 's/^version = "\(.*\)"/\1/p' operator/pyproject.toml)" latest; \
	mike set-default --push latest

lock: ## renew operator/constraints.txt from a fresh environment, and with it the images' requirements and their hashes
	@rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install --quiet --editable 'operator[operator,engine,spark,tracing,mqtt,demo,test,bench]'
	@{ head -n 1 operator/constraints.txt; $(VENV)-lock/bin/pip freeze --exclude-editable; } > $(VENV)-lock/constraints.txt
	@mv $(VENV)-lock/constraints.txt operator/constraints.txt && rm -rf $(VENV)-lock
	@$(MAKE) --no-print-directory lock-images

# The images have Debian's Python 3.11. The base image lists only what its parent lacks.
UV_COMPILE = $(VENV)-uv/bin/uv pip compile --quiet --no-annotate --generate-hashes --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 --custom-compile-command 'make lock-images' --constraint operator/constraints.txt
lock-images: ## renew the images' requirements and their hashes at the versions of operator/constraints.txt
	@$(PYTHON) -m venv $(VENV)-uv && $(VENV)-uv/bin/pip install --quiet uv
	@$(UV_COMPILE) operator/pyproject.toml --extra operator --extra engine --extra tracing --extra mqtt --extra iceberg \
		-o spark-images/python/requirements.txt
	@$(UV_COMPILE) operator/pyproject.toml --extra spark -o spark-images/base/requirements.txt \
		$$(sed -n 's/^\([^ ]*\)==.*/--no-emit-package \1/p' spark-images/python/requirements.txt)
	@printf 'setuptools\nwheel\n' | $(UV_COMPILE) - -o spark-images/base/build-requirements.txt
	@rm -rf $(VENV)-uv

clean: ## remove what the demo made and the environment; caches outside the checkout stay
	@rm -rf .demo $(VENV)
