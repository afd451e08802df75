#!/usr/bin/env bash
# make release: a static program, what goes with it, a tar file and a Debian package, all in
# $CARGO_TARGET_DIR/release-package; nothing is there unless the program starts and serves.
# With --binary-only just the program (deploy/container/Containerfile).
#
# Static against glibc, not musl: Keyway's buffers come from the C library's allocator, whose
# thresholds it sets (crates/store/src/malloc.rs), and the target's C toolchain is then the one
# that every Debian has. Names are looked up in /etc/hosts and by DNS, which glibc has built in;
# other sources in nsswitch.conf need the same glibc on the machine, and are better left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
target="${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}"
finished="$CARGO_TARGET_DIR/release-package"
# What was made before is not what is made now, whatever becomes of this.
out="$finished.part"
rm -rf "$finished" "$out"
trap 'rm -rf "$out"' EXIT

# The target is named, so that what runs while building (macros, build scripts) is not static too.
# No path of this machine is left in the program.
home="${CARGO_HOME:-$HOME/.cargo}"
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static --remap-path-prefix=$PWD=. --remap-path-prefix=$home=cargo" \
  cargo build --release --locked --package keyway --target "$target"
built="$CARGO_TARGET_DIR/$target/release/keyway"

if readelf --program-headers --wide "$built" | grep -q INTERP; then
  echo "release: $built is not static: it wants an interpreter" >&2
  exit 1
fi
mkdir -p "$out"
# Lines of the source for traces go beside the program.
objcopy --only-keep-debug "$built" "$out/keyway.debug"
objcopy --strip-debug --add-gnu-debuglink="$out/keyway.debug" "$built" "$out/keyway"
scripts/check_release.sh "$out/keyway"
if [ "${1:-}" = --binary-only ]; then
  mv "$out" "$finished"
  exit 0
fi

papers="$out/papers"
mkdir -p "$papers"
cargo run --quiet --locked --package keyway-testkit --bin supply -- licences
cargo run --quiet --locked --package keyway-testkit --bin supply -- sbom "$target" >"$papers/sbom.cdx.json"
cargo run --quiet --locked --package keyway-testkit --bin supply -- notices "$target" >"$papers/THIRD-PARTY"
scripts/package.sh "$out/keyway" "$papers" "$out"
rm -rf "$papers"
mv "$out" "$finished"
ls -l "$finished"
