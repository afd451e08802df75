#!/usr/bin/env bash
# Builds and downloads what `make test` needs after its suites, while these wait for
# servers and time-outs, until it is ended. Whoever needs it builds what is left, and says
# what is wrong with it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
KEYWAY="$target/debug/keyway" scripts/test_clients.sh --quick --build
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" \
  cargo test --quiet --locked --package keyway-ring --lib --no-run
RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR="$target/shuttle" \
  cargo test --quiet --locked --package keyway-bus --test orders --no-run
scripts/fuzz.sh --build
