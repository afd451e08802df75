#!/usr/bin/env bash
# Changes one crate in many small ways and runs its tests on each change: a change that no test
# notices marks a rule that no test states.
#   CRATE=users       the crate
#   FILES="a.rs b.rs" only these files of its src/ (globs)
#   SHARD=k/n         only the k-th of n parts, counted from 0
#   ARGS=...          more for cargo-mutants, such as --list
# The changes are made in a copy of the tree, below target/mutants, whose build stays warm. The results
# lie in target/mutants/CRATE/mutants.out: missed.txt has the changes that no test noticed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
crate="${CRATE:?which crate: make mutants CRATE=users}"
[ -d "crates/$crate" ] || { echo "mutants: there is no crate $crate" >&2; exit 1; }
home="${CARGO_TARGET_DIR:-$PWD/target}/mutants"
copy="$home/tree"
export CARGO_TARGET_DIR="$home/build"
# A property that needs more cases than these to fail is too weak.
export PROPTEST_CASES="${PROPTEST_CASES:-128}"
# One failure is enough: nobody needs its smallest example, which takes longer than the tests may.
export PROPTEST_MAX_SHRINK_ITERS=0

if ! cargo mutants --version >/dev/null 2>&1; then
  echo "mutants: installing cargo-mutants"
  cargo install cargo-mutants --locked --quiet
fi

# Test programs of the crate that take a second or two, the quickest first. The others are left out.
tests=()
case "$crate" in
  users) tests=(against_redis) ;;
  control) tests=(admin) ;;
  topology) tests=(cluster_map clients cluster_views recorded placement) ;;
  memcache) tests=(packets invariants usual memcached) ;;
  store) tests=(eviction quotas mixes zero_copy) ;;
esac

# An unchanged file keeps its time, so that cargo builds only the changed ones.
mkdir -p "$copy" "$home/$crate"
list="$home/list"
git ls-files --cached --others --exclude-standard | sort -u >"$list"
while read -r file; do
  if [ -f "$file" ] && ! cmp -s "$file" "$copy/$file"; then
    mkdir -p "$(dirname "$copy/$file")"
    cp "$file" "$copy/$file"
  fi
done <"$list"
(cd "$copy" && find . -type f | sed 's|^\./||' | sort | comm -23 - "$list" | while read -r file; do rm "$file"; done)

args=(--in-place --package "keyway-$crate" --profile mutants --output "$home/$crate" --colors never
  --cargo-arg=--locked)
for file in ${FILES:-}; do args+=(--file "crates/$crate/src/$file"); done
# A part has changes of each file.
[ -z "${SHARD:-}" ] || args+=(--shard "$SHARD" --sharding round-robin)
cd "$copy"
# First the unit tests, which build and run in the shortest time. The test programs get the changes
# that the unit tests do not notice. Exit status 2 means that a change was missed, 3 that a test
# took too long.
round() {
  local status=0
  # shellcheck disable=SC2086
  cargo mutants "${args[@]}" "$@" ${ARGS:-} || status=$?
  [ "$status" -eq 0 ] || [ "$status" -eq 2 ] || [ "$status" -eq 3 ] || exit "$status"
}
if [ -n "${SHARD:-}" ]; then
  # One round for all tests: what a round leaves would be divided into other parts by the next.
  round --cargo-arg=--lib "${tests[@]/#/--cargo-arg=--test=}"
else
  round --cargo-arg=--lib
fi
case " ${ARGS:-} " in *" --list"*) exit ;; esac
[ -n "${SHARD:-}" ] || for test in "${tests[@]}"; do round --iterate "--cargo-arg=--test=$test"; done
found="$home/$crate/mutants.out"
echo "mutants: $crate: $(cat "$found/missed.txt" "$found/timeout.txt" | wc -l) left, in $found/missed.txt and timeout.txt"
