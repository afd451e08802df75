#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds, from its checked-in
# seeds and what earlier runs found. Without a nightly toolchain or cargo-fuzz
# it says so in one line and plays the seeds, and changed copies of them,
# through the same targets on the stable toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds="${1:-20}"

# A target directory of its own: libFuzzer's flags would rebuild everything.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
mkdir -p "$CARGO_TARGET_DIR"

play_seeds() {
  echo "fuzz: $1; playing the checked-in seeds instead"
  exec cargo test --locked --manifest-path fuzz/Cargo.toml --no-default-features
}

cargo +nightly --version >/dev/null 2>&1 ||
  play_seeds "no nightly toolchain (rustup toolchain install nightly)"
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz: installing cargo-fuzz"
  cargo install cargo-fuzz --locked --quiet || play_seeds "cargo-fuzz cannot be installed"
fi
if ! cargo +nightly fuzz build >"$CARGO_TARGET_DIR/build.log" 2>&1; then
  tail -n 40 "$CARGO_TARGET_DIR/build.log"
  echo "fuzz: the targets do not build; all of it: $CARGO_TARGET_DIR/build.log"
  exit 1
fi

failed=0
for target in $(cargo +nightly fuzz list); do
  corpus="fuzz/corpus/$target"
  seeds="fuzz/seeds/$target"
  log="$CARGO_TARGET_DIR/$target.log"
  mkdir -p "$corpus" "$seeds"
  if cargo +nightly fuzz run "$target" "$corpus" "$seeds" -- \
    -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1; then
    inputs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    echo "fuzz: $target passed: ${inputs:-?} inputs in $seconds s"
  else
    failed=$((failed + 1))
    echo "fuzz: $target FAILED; the input and how to replay it:"
    tail -n 40 "$log"
  fi
done
[ "$failed" -eq 0 ]
