#!/usr/bin/env bash
# make test: tools, checks, every suite (the simulator's seeds among them), short
# fuzz; then one line of totals. Goes on after a failure, so that one run tells all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export CARGO_TERM_COLOR=never
# What is installed below must be there: a test that would leave itself out for
# want of it fails (testkit/src/skip.rs).
export KEYWAY_TEST_TOOLS_REQUIRED=1
# Debian puts nutcracker where only root looks.
export PATH="$PATH:/usr/sbin"
fuzz_seconds="${FUZZ_SECONDS:-5}"
log="$CARGO_TARGET_DIR/test-log"
mkdir -p "$log"

passed=0
failed=0
failures=()
again=0
fuzzed="no fuzz target ran"

# One step that either works or not: counts as one.
step() {
  local name="$1"
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name")
  fi
}

# A step made of Rust tests: counts each of them, and a build that fails as
# one failure.
suite() {
  local name="$1" output="$log/$1.log" status=0
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$output" || status=$?
  local counts good bad
  counts=$(awk '/^test result:/ { good += $4; bad += $6 } END { print good + 0, bad + 0 }' "$output")
  read -r good bad <<<"$counts"
  passed=$((passed + good))
  failed=$((failed + bad))
  if [ "$bad" -gt 0 ] || [ "$status" -ne 0 ]; then
    [ "$bad" -gt 0 ] || failed=$((failed + 1))
    failures+=("$name ($output)")
  fi
}

# The test programs of the workspace, several at once (testkit/src/bin/suites.rs);
# beside them is built what comes after them.
suites() {
  local output="$log/tests.log" status=0
  echo "== tests"
  rm -rf "$log/suites"
  "$CARGO_TARGET_DIR/debug/suites" "$log/suites" scripts/build_ahead.sh 2>&1 | tee "$output" || status=$?
  local totals good bad
  totals=$(sed -n 's/^suites: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) .*/\1 \2 \3/p' "$output")
  read -r good bad again <<<"${totals:-0 0 0}"
  passed=$((passed + good))
  failed=$((failed + bad))
  if [ "$bad" -gt 0 ] || [ "$status" -ne 0 ]; then
    [ "$bad" -gt 0 ] || failed=$((failed + 1))
    failures+=("tests ($output)")
  fi
}

# Prints fuzz targets' lines and counts each.
fuzz() {
  local output="$log/fuzz.log" status=0
  echo "== fuzz, $fuzz_seconds s each"
  # The same inputs each time: `make fuzz` draws others.
  FUZZ_SEED="${FUZZ_SEED:-1}" scripts/fuzz.sh "$fuzz_seconds" 2>&1 | tee "$output" || status=$?
  local targets tests bad
  targets=$(grep -c '^fuzz: .* passed' "$output" || true)
  tests=$(awk '/^test result:/ { good += $4 } END { print good + 0 }' "$output")
  bad=$(grep -c '^fuzz: .* FAILED' "$output" || true)
  if [ "$targets" -gt 0 ]; then
    fuzzed="$targets fuzz targets ran for $fuzz_seconds s each"
  elif [ "$tests" -gt 0 ]; then
    fuzzed="no fuzzer ran ($(sed -n 's/^fuzz: \(.*\); playing .*/\1/p' "$output")); its seeds were played"
  fi
  local good=$((targets + tests))
  passed=$((passed + good))
  failed=$((failed + bad))
  again=$((again + $(grep -c '^fuzz: .* passed only when run again' "$output" || true)))
  if [ "$status" -ne 0 ]; then
    [ "$bad" -gt 0 ] || failed=$((failed + 1))
    failures+=("fuzz ($output)")
  fi
}

# Tools of the whole workspace, so that what they need is built once, as the tests need it.
layers() {
  cargo build --quiet --locked --workspace --bin layer_check --bin suites --bin supply &&
    "$CARGO_TARGET_DIR/debug/layer_check" &&
    "$CARGO_TARGET_DIR/debug/supply" licences
}

# One stock client per language; what is left out is repeated at the end.
stock_clients() {
  KEYWAY="$CARGO_TARGET_DIR/debug/keyway" scripts/test_clients.sh --quick 2>&1 |
    tee "$log/clients.log"
}

# The wheel, and redis-py over it.
python_client() {
  scripts/python_client.sh 2>&1 | tee "$log/python-client.log"
}

scripts/install_test_tools.sh
step "python environment" scripts/python_venv.sh
step "python environment of the admin API" scripts/python_venv.sh tests/admin
step "formatting" cargo fmt --all --check
step "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "layers" layers
suites
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/loom" \
  suite loom cargo test --locked --package keyway-ring --lib
RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/shuttle" \
  suite shuttle cargo test --locked --package keyway-bus --test orders
step "stock clients" stock_clients
step "python client" python_client
fuzz

echo
left_out=$(grep -ho 'SKIPPED: .*' "$log/tests.log" "$log/clients.log" | sort -u || true)
if [ -n "$left_out" ]; then
  echo "Left out on this machine:"
  sed 's/^SKIPPED: /  /' <<<"$left_out"
fi
echo "Fuzzing: $fuzzed."
if [ "$failed" -eq 0 ]; then
  echo "All is well: what ran of checks, suites against real servers, the simulator's seeds and fuzzing passed."
else
  echo "Not all is well:"
  printf '  %s\n' "${failures[@]}"
fi
rerun=""
if [ "$again" -gt 0 ]; then
  grep -h 'passed only when run again alone: ' "$log/tests.log" "$log/fuzz.log" || true
  rerun=", $again programs only when run again alone"
fi
echo "$passed passed, $failed failed$rerun"
[ "$failed" -eq 0 ]
