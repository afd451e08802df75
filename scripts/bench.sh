#!/usr/bin/env bash
# Reruns the published benchmarks, or those that NAMES names, and writes what they show: the tables
# into docs/benchmark-tables.md, a digest of them into docs/performance.md, and a page with plots for
# each into target/bench/. Arguments go to `keyway bench run`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
names=${NAMES:-codis-vs-twemproxy twemproxy-memcached cluster-proxies aerospike-cache atbus}
out=target/bench
mkdir -p "$out"
cargo build --release --locked --package keyway
keyway=$target/release/keyway
for name in $names; do
  # One that could not be measured as a whole is told of in its table.
  "$keyway" bench run "$name" --json "$out/$name.json" --html "$out/$name.html" \
    --into docs/benchmark-tables.md "$@" || [ $? -eq 1 ]
done
results=()
for name in codis-vs-twemproxy twemproxy-memcached cluster-proxies aerospike-cache atbus; do
  [ -s "$out/$name.json" ] && results+=("$out/$name.json")
done
"$keyway" bench digest "${results[@]}" --into docs/performance.md
