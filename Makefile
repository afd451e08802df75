# Every target works on a clean Debian with a Rust toolchain and a C compiler.
# CI calls the same targets (.ci/run).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run release test test-clients test-io-uring check bench agreement peers fuzz sim oracle differences command-table mutants asan valgrind loom shuttle soak pauses scaling

export CARGO_TARGET_DIR ?= $(CURDIR)/target

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `make run your.toml` has the file as a goal of its own, and would serve without it.
ifeq (run,$(firstword $(MAKECMDGOALS)))
ifneq (,$(word 2,$(MAKECMDGOALS)))
$(error write `make run FILE=$(word 2,$(MAKECMDGOALS))` to serve a file)
endif
endif

run: ## build and start: the embedded store on 127.0.0.1:6380, or FILE=your.toml, or a fleet: FILE=docs/examples/fleet.toml
	@cargo build --release --locked --package keyway
ifeq (docs/examples/fleet.toml,$(FILE))
	@exec scripts/fleet.sh "$(CARGO_TARGET_DIR)/release/keyway" $(FILE)
else
	@exec "$(CARGO_TARGET_DIR)/release/keyway" serve $(FILE)
endif

release: ## a static program, packages of it, and what they are made of (docs/install.md)
	@scripts/release.sh

test: ## everything: checks, all suites against real servers, simulator, short fuzz
	@scripts/test.sh

test-io-uring: ## the black-box suite with Keyway driven by io_uring; fails where the system has none
	@KEYWAY_IO=io_uring cargo test --locked --no-fail-fast --package keyway --tests -- --test-threads 2

test-clients: ## stock clients of five languages; writes docs/clients.md (ARGS=--accept, or ARGS=go)
	@scripts/test_clients.sh $(ARGS)

check: ## formatting, lints, who may import whom, licences, and that the fuzz targets compile
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@cargo check --quiet --manifest-path fuzz/Cargo.toml --no-default-features --lib --tests
	@cargo run --quiet --locked --package keyway-testkit --bin layer_check
	@cargo run --quiet --locked --package keyway-testkit --bin supply -- licences

bench: ## rerun published benchmarks into docs/performance.md (an hour or less, on a quiet machine; NAMES="atbus", ARGS="--rounds 7")
	@scripts/bench.sh $(ARGS)

agreement: ## our figures of a real server beside redis-benchmark's (wants a quiet machine)
	@cargo test --release --locked --package keyway-load --test agreement -- --include-ignored --nocapture

peers: ## rerun the comparison with peers in docs/performance.md (takes long; wants a quiet machine; ARGS=--help)
	@cargo build --release --locked --package keyway --package keyway-bench
	@"$(CARGO_TARGET_DIR)/release/keyway-peer-bench" $(ARGS)

fuzz: ## each fuzz target for SECONDS=20 seconds (needs a nightly toolchain)
	@scripts/fuzz.sh $(or $(SECONDS),20)

sim: ## the simulator over SEEDS=500 seeds of each kind (or KINDS=clusters+mutes), starting at FROM=0, by either driver (or IO=ring)
	@IO="$(IO)" scripts/sim.sh $(or $(SEEDS),500) $(or $(FROM),0) "$(KINDS)"

mutants: ## small changes to CRATE=users that its own tests do not notice (or FILES="a.rs b/*.rs", SHARD=0/8, ARGS=--list); by hand only
	@CRATE="$(CRATE)" FILES="$(FILES)" SHARD="$(SHARD)" ARGS="$(ARGS)" scripts/mutants.sh

asan: ## the tests of the crates with unsafe code under AddressSanitizer (needs a nightly toolchain)
	@scripts/asan.sh --no-fail-fast

valgrind: ## their unit tests under valgrind's memcheck
	@scripts/valgrind.sh

loom: ## the orders in which the steps of a ring's ends can come, up to DEPTH=3 preemptions (takes minutes)
	@RUSTFLAGS="--cfg loom" KEYWAY_LOOM_DEPTH=$(or $(DEPTH),3) CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/loom" \
	  cargo test --locked --package keyway-ring --lib

shuttle: ## nodes of the bus on threads with rings between them, in ROUNDS=20000 orders of their steps
	@RUSTFLAGS="--cfg shuttle" KEYWAY_SHUTTLE_ROUNDS=$(or $(ROUNDS),20000) CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/shuttle" \
	  cargo test --locked --package keyway-bus --test orders -- --nocapture

soak: ## values of 512 MB both ways, 10,000 writers of rings killed and as often stopped, KILLS=2000 of processes with a log for each rule of fsync, then MINUTES=10 of load and faults on the store and on four servers; every reply is checked
	@cargo test --release --locked --package keyway --test clients -- large_values:: --ignored --nocapture
	@KEYWAY_RING_FAULTS=10000 cargo test --release --locked --package keyway-ring --test crash writer
	@KEYWAY_LOG_KILLS=$(or $(KILLS),2000) cargo test --release --locked --package keyway-log --test kills
	@KEYWAY_LOG_KILLS=$(or $(KILLS),2000) cargo test --release --locked --package keyway --test store -- forty_kills other_rules
	@KEYWAY_SOAK_MINUTES=$(or $(MINUTES),10) \
	  cargo test --release --locked --package keyway --test process -- soak:: --ignored --nocapture

command-table: ## ask a real redis-server for its commands and rewrite the table
	@scripts/command_table.sh

oracle: ## SEQUENCES=1000 generated sequences against a bare redis-server, from seed FROM=0 on
	@KEYWAY_ORACLE_SEQUENCES=$(or $(SEQUENCES),1000) KEYWAY_ORACLE_FROM=$(or $(FROM),0) \
	  cargo test --locked --package keyway --test clients -- oracle:: --nocapture

scaling: ## how much more two threads do on one store than one (needs two free cores)
	@cargo test --release --locked --package keyway-store --test scaling -- --nocapture

pauses: ## how long single calls of the store take with ten million items (takes minutes)
	@cargo test --locked --package keyway-store --features large --test pauses -- --nocapture

differences: ## rewrite docs/differences.md from the table of the tests
	@KEYWAY_WRITE_DOCS=1 cargo test --quiet --locked --package keyway --test clients oracle::the_page
