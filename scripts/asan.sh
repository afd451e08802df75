#!/usr/bin/env bash
# The tests of the crates with unsafe code under AddressSanitizer, leaks
# included. Needs a nightly toolchain: the sanitizer is not in the stable one.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "make asan needs a nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
fi
# Objects of another ABI are not to replace those of other targets.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
export RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
# Memory that was freed is kept for a while: a use of it is found.
export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=64:allocator_may_return_null=1"
export PROPTEST_CASES="${PROPTEST_CASES:-64}"
# Figures of the process's memory and of time would be the sanitizer's: the tests
# about them do less, and only that it is done without a fault counts.
export KEYWAY_SANITIZED=1
cargo +nightly test --locked --target x86_64-unknown-linux-gnu \
  --package keyway-memory --package keyway-store --package keyway-net --package keyway-ring "$@"
