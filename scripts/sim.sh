#!/usr/bin/env bash
# The simulator over SEEDS seeds starting at FROM, of every kind of pool or of those that the
# third argument has: "clusters replicated" are two kinds, "clusters+mutes" is one that combines
# two options of keyway-sim; "sharded" are pools of Redis, "replicas" stores that replicate to
# each other, "fleet" control nodes and members. Without the third argument, kinds with
# mutes run a tenth of the seeds. A failing seed is printed with the command that replays it. Half
# of the seeds have workers driven by epoll, half by io_uring; IO=epoll or IO=ring has all of them
# the one way.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seeds=${1:-500}
few=$(((seeds + 9) / 10))
kinds=${3:-}
all="sharded memcached warm-up routes clusters replicated slots replicas fleet"
mutes="mutes memcached+mutes routes+mutes clusters+mutes replicated+mutes slots+mutes"
failed=0
run() {
  local kind=$1 count=$2 options=() words=() word
  IFS=+ read -ra words <<<"$kind"
  for word in "${words[@]}"; do
    [ "${word#--}" = sharded ] || options+=("--${word#--}")
  done
  [ -z "${IO:-}" ] || options+=(--io "$IO")
  echo "== $count seeds of $kind"
  cargo run --quiet --release --locked --package keyway-sim -- \
    --seeds "$count" --from "$from" "${options[@]}" || failed=1
}
from=${2:-0}
if [ -n "$kinds" ]; then
  for kind in $kinds; do run "$kind" "$seeds"; done
else
  for kind in $all; do run "$kind" "$seeds"; done
  for kind in $mutes; do run "$kind" "$few"; done
fi
exit "$failed"
