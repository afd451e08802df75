#!/usr/bin/env bash
# The simulator over SEEDS seeds starting at FROM, of every kind of pool or of those that
# the third argument has ("--clusters --replicated"; "--sharded" are pools of Redis). A
# failing seed is printed with the command that replays it. Half of the seeds have workers
# driven by epoll, half by io_uring; IO=epoll or IO=ring has all of them the one way.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
for kind in ${3:---sharded --memcached --warm-up --routes --clusters --replicated}; do
  echo "== seeds of $kind"
  options=("$kind")
  [ "$kind" != --sharded ] || options=()
  [ -z "${IO:-}" ] || options+=(--io "$IO")
  cargo run --quiet --release --locked --package keyway-sim -- \
    --seeds "${1:-500}" --from "${2:-0}" "${options[@]}" || failed=1
done
exit "$failed"
