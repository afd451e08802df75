#!/usr/bin/env bash
# Stock clients of five languages against a bare redis-server or memcached, a 4-shard pool
# and the embedded store: builds their programs below the target directory,
# runs them, compares with tests/clients/expected.tsv and writes docs/clients.md.
#
#   --quick    one client per language, and only where its toolchain is
#   --build    builds the programs and does not run them
#   --accept   the failures of this run become the known ones
#   LANGUAGE   only these: python go java node rust
#
# KEYWAY names the binary to test; without it one is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
programs="$target/stock-clients"
sources="$PWD/tests/clients"
export CARGO_TERM_COLOR=never

variant=full
is_only_built=0
options=()
languages=()
for argument in "$@"; do
  case "$argument" in
    --quick) variant=quick; options+=(--quick) ;;
    --build) is_only_built=1 ;;
    --accept) options+=(--accept) ;;
    python | go | java | node | rust) languages+=("$argument") ;;
    *) echo "unknown argument: $argument" >&2; exit 1 ;;
  esac
done
if [ ${#languages[@]} -eq 0 ]; then
  # The Python client of every `make test` is crates/keyway/tests/clients/clients.rs.
  if [ "$variant" = quick ]; then languages=(go java node rust); else languages=(python go java node rust); fi
fi

build_python() {
  local venv="$programs/python/venv"
  cmp -s "$sources/python/requirements.txt" "$venv/requirements.txt" && return
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-deps --requirement "$sources/python/requirements.txt"
  "$venv/bin/python" -m pip check
  cp "$sources/python/requirements.txt" "$venv/requirements.txt"
}

build_go() {
  local tags=()
  [ "$variant" = full ] || tags=(-tags quick)
  (cd "$sources/go" && go build -mod=readonly "${tags[@]}" -o "$programs/go/$variant" .)
}

build_java() {
  mvn --quiet --batch-mode --file "$sources/java/pom.xml" "-P$variant" \
    "-Dbuild.to=$programs/java/$variant" package
}

build_node() {
  cp "$sources"/node/*.mjs "$programs/node/"
  cmp -s "$sources/node/package-lock.json" "$programs/node/installed.json" && return
  cp "$sources"/node/package{,-lock}.json "$programs/node/"
  (cd "$programs/node" && npm ci --no-audit --no-fund --ignore-scripts)
  cp "$sources/node/package-lock.json" "$programs/node/installed.json"
}

build_rust() {
  local features=()
  [ "$variant" = full ] || features=(--no-default-features)
  cargo build --quiet --locked --manifest-path "$sources/rust/Cargo.toml" \
    --target-dir "$programs/rust" "${features[@]}"
}

# Builds in a shell of its own: `set -e` does not hold inside a condition.
build() {
  (set -euo pipefail; "build_$1") >"$programs/$1.log" 2>&1 </dev/null
}

# The program each language cannot do without.
declare -A needs=([python]=python3 [go]=go [java]=mvn [node]=npm [rust]=cargo)
present=()
missing=0
for language in "${languages[@]}"; do
  if command -v "${needs[$language]}" >/dev/null; then
    present+=("$language")
  elif [ "$variant" = quick ]; then
    echo "SKIPPED: the stock clients in $language: ${needs[$language]} is missing"
  else
    echo "${needs[$language]} is missing: the stock clients in $language cannot run" >&2
    missing=1
  fi
done
[ "$missing" -eq 0 ] || exit 1
[ ${#present[@]} -gt 0 ] || exit 0

# Most of a build is waiting for downloads: all at once.
declare -A building
for language in "${present[@]}"; do
  mkdir -p "$programs/$language"
  build "$language" &
  building[$language]=$!
done
if [ -z "${KEYWAY:-}" ]; then
  cargo build --quiet --locked --package keyway
  KEYWAY="$target/debug/keyway"
fi
for language in "${present[@]}"; do
  wait "${building[$language]}" && continue
  # A download may fail by chance, hardly twice.
  build "$language" &
  if ! wait $!; then
    echo "cannot build the stock clients in $language:" >&2
    tail -n 40 "$programs/$language.log" >&2
    missing=1
  fi
done
[ "$missing" -eq 0 ] || exit 1
[ "$is_only_built" -eq 0 ] || exit 0

exec python3 tests/clients/matrix.py --programs "$programs" --keyway "$KEYWAY" "${options[@]}" --only "${present[@]}"
