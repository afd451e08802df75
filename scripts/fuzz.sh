#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds, as many at once as
# there are cores; one line for each. Starts from fuzz/seeds (checked in) and
# what earlier runs found (fuzz/corpus), with words from fuzz/dictionaries. Where libFuzzer cannot be had it says
# so in one line and plays the seeds and the property tests instead.
# With FUZZ_SEED=N it draws what N says and leaves out what earlier runs found,
# so that the same inputs come first each time and everywhere. With --build for
# the seconds it only builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds="${1:-20}"
# libFuzzer needs flags of its own, so its build never mixes with ours.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
mkdir -p "$CARGO_TARGET_DIR"

without() {
  [ "$seconds" != --build ] || exit 0
  echo "fuzz: $1; playing the seeds and the property tests instead"
  cargo test --quiet --manifest-path fuzz/Cargo.toml --no-default-features
  PROPTEST_CASES=2000 cargo test --quiet --locked --package keyway-command --package keyway-config \
    --package keyway-memcache --package keyway-rdb --package keyway-resp --package keyway-store --package keyway-topology \
    --lib --test invariants
  exit
}

cargo +nightly --version >/dev/null 2>&1 || without "no nightly toolchain (rustup toolchain install nightly)"
command -v c++ >/dev/null || without "no C++ compiler (apt-get install g++)"
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz: installing cargo-fuzz"
  cargo install cargo-fuzz --locked --quiet || without "cargo-fuzz cannot be installed"
fi

build="$CARGO_TARGET_DIR/build.log"
if ! cargo +nightly fuzz build --release --debug-assertions >"$build" 2>&1; then
  grep -A 12 '^error' "$build" || tail -n 40 "$build"
  echo "fuzz: the build FAILED; all of it: $build"
  exit 1
fi
[ "$seconds" != --build ] || exit 0
binaries="$CARGO_TARGET_DIR/$(rustc -vV | awk '/^host:/ { print $2 }')/release"

# Runs one target; its only output is that it passed.
run() {
  local target="$1" log="$CARGO_TARGET_DIR/$1.log" artifacts="fuzz/artifacts/$1"
  local corpus="fuzz/corpus/$target" drawn=()
  if [ -n "${FUZZ_SEED:-}" ]; then
    corpus="$CARGO_TARGET_DIR/corpus/$1"
    drawn=("-seed=$FUZZ_SEED")
    rm -rf "$corpus"
  fi
  mkdir -p "$corpus" "$artifacts"
  local words=() dictionary="fuzz/dictionaries/$target.dict"
  if [ -e "$dictionary" ]; then words=("-dict=$dictionary"); fi
  if "$binaries/$target" -max_total_time="$seconds" -max_len=2048 -timeout=20 -rss_limit_mb=2048 "${words[@]}" \
    "${drawn[@]}" -print_final_stats=1 -artifact_prefix="$artifacts/" "$corpus" "fuzz/seeds/$target" \
    >"$log" 2>&1; then
    echo "fuzz: $target passed: $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") inputs in $seconds s"
    return
  fi
  echo "$target" >>"$failures"
}

# The input with which a target failed, alone: one that was slow beside others may not be.
again() {
  local target="$1" log="$CARGO_TARGET_DIR/$1.log" input
  input=$(grep -o "fuzz/artifacts/$1/[^ ]*" "$log" | tail -n 1)
  if [ -n "$input" ] &&
    "$binaries/$target" -timeout=20 -rss_limit_mb=2048 "$input" >"$CARGO_TARGET_DIR/$1.again.log" 2>&1; then
    echo "fuzz: $target passed only when run again alone: $input ($log)"
    return
  fi
  printf '%s\nfuzz: %s FAILED; replay: %s %s\n' \
    "$(grep -A 3 'panicked at\|^==.*ERROR' "$log" | head -n 12)" "$target" "$binaries/$target" "$input"
  return 1
}

failures="$CARGO_TARGET_DIR/failures"
: >"$failures"
running=0
for target in $(cargo +nightly fuzz list); do
  if [ "$running" -ge "$(nproc)" ]; then
    wait -n || true
    running=$((running - 1))
  fi
  run "$target" &
  running=$((running + 1))
done
wait
failed=0
while read -r target; do
  again "$target" </dev/null || failed=$((failed + 1))
done <"$failures"
[ "$failed" -eq 0 ]
