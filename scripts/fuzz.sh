#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds. Without a nightly
# toolchain or cargo-fuzz it says so in one line and plays the targets'
# stable counterparts, the property tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds="${1:-20}"

without() {
  echo "fuzz: $1; running the property tests instead"
  PROPTEST_CASES=2000 cargo test --locked --package keyway-resp --package keyway-proxy \
    --package keyway-topology --package keyway-store --lib
  exit
}

[ -d fuzz ] || { echo "fuzz: there is no fuzz/ here" >&2; exit 1; }
cargo +nightly --version >/dev/null 2>&1 || without "no nightly toolchain (rustup toolchain install nightly)"
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz: installing cargo-fuzz"
  # Its target directory is its own, so that a later build finds it again.
  cargo install cargo-fuzz --locked --quiet || without "cargo-fuzz cannot be installed"
fi

# libFuzzer needs its own flags, so its build never mixes with ours.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
failed=0
for target in $(cargo +nightly fuzz list); do
  mkdir -p "fuzz/corpus/$target"
  log="$CARGO_TARGET_DIR/$target.log"
  mkdir -p "$CARGO_TARGET_DIR"
  if cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=4096 \
    -print_final_stats=1 >"$log" 2>&1; then
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    echo "fuzz: $target passed: ${runs:-?} inputs in $seconds s"
  else
    failed=$((failed + 1))
    echo "fuzz: $target FAILED; the input and how to replay it:"
    tail -n 40 "$log"
  fi
done
[ "$failed" -eq 0 ]
