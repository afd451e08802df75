#!/usr/bin/env bash
# Memcheck over the unit tests, and some others, of the crates with unsafe code: reads of memory
# that was never written, which AddressSanitizer does not see.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "make valgrind needs valgrind: apt-get install valgrind" >&2; exit 1; }
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"
# It runs some fifty times slower; figures of memory are another matter here.
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
export KEYWAY_SANITIZED=1
binaries() {
  cargo test --locked --no-run --message-format=json --package keyway-memory --package keyway-store --package keyway-net "$@" |
    python3 -c '
import json, sys
for line in sys.stdin:
    one = json.loads(line)
    if one.get("executable") and one.get("profile", {}).get("test"):
        print(one["executable"])'
}
failed=0
mapfile -t tests < <(binaries --lib; binaries --test transactions --test waiters --test streams --test pauses)
for test in "${tests[@]}"; do
  echo "== $(basename "$test")"
  # Tests about bytes per item or about time measure valgrind, not the store.
  valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --fair-sched=yes "$test" --test-threads=1 --skip memory_per_item --skip threads \
    --skip short_entries_take || failed=1
done
exit "$failed"
