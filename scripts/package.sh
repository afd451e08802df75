#!/usr/bin/env bash
# Puts a program, what is generated from it and the files of deploy/ where systems have them, and
# makes a tar file and a Debian package of that, the same bytes for the same input.
# Usage: scripts/package.sh PROGRAM PAPERS OUT; PACKAGE_LEVEL=1 packs faster and larger
#   PAPERS holds sbom.cdx.json and THIRD-PARTY (testkit/src/bin/supply.rs)
set -euo pipefail
program="$(readlink -f "$1")"
papers="$(readlink -f "$2")"
mkdir -p "$3"
out="$(readlink -f "$3")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
level="${PACKAGE_LEVEL:-9}"
version="$("$program" --version | cut -d ' ' -f 2)"
machine="$(uname -m)"
# Times in the packages: of the commit, so that they do not depend on when this runs.
# Without one (or as another user than the one whose repository it is), when the changelog was written last.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH
stage="$out/stage"
rm -rf "$stage"
umask 022

put() {
  install -D -m "$1" "$2" "$stage/$3"
}

put 0755 "$program" usr/bin/keyway
put 0644 deploy/systemd/keyway.service usr/lib/systemd/system/keyway.service
put 0644 deploy/systemd/keyway-control.service usr/lib/systemd/system/keyway-control.service
put 0644 deploy/systemd/keyway.sysusers usr/lib/sysusers.d/keyway.conf
put 0644 deploy/systemd/keyway.tmpfiles usr/lib/tmpfiles.d/keyway.conf
put 0640 deploy/keyway.toml etc/keyway/keyway.toml
# For certificates and keys.
install -d -m 0750 "$stage/etc/keyway/tls"
put 0644 deploy/grafana/keyway.json usr/share/keyway/grafana/keyway.json
put 0644 deploy/prometheus/keyway.rules.yml usr/share/keyway/prometheus/keyway.rules.yml

shared="$stage/usr/share"
"$program" generate man "$shared/man/man1"
gzip -9n "$shared"/man/man1/*.1
mkdir -p "$shared"/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$program" generate completions bash >"$shared/bash-completion/completions/keyway"
"$program" generate completions zsh >"$shared/zsh/vendor-completions/_keyway"
"$program" generate completions fish >"$shared/fish/vendor_completions.d/keyway.fish"

cat LICENSE-MIT LICENSE-APACHE >"$out/copyright"
put 0644 "$out/copyright" usr/share/doc/keyway/copyright
rm "$out/copyright"
doc=usr/share/doc/keyway
for paper in NOTICE CHANGELOG.md ARCHITECTURE.md "$papers/sbom.cdx.json" "$papers/THIRD-PARTY" docs/*.md docs/openapi.json; do
  put 0644 "$paper" "$doc/$(basename "$paper")"
done
for paper in docs/adr/*.md docs/protocol/*.md docs/examples/*; do
  put 0644 "$paper" "$doc/${paper#docs/}"
done
put 0644 clients/python/README.md $doc/clients/python/README.md
put 0644 tests/python/memcached_client.py $doc/examples/memcached_client.py
# Links lead to where things are here; to what is source and not here they are words.
find "$stage/$doc" -name '*.md' -exec sed -Ei \
  -e 's#\]\((\.\./)+deploy/([a-z]+)/#](/usr/share/keyway/\2/#g' \
  -e 's#\]\((\.\./)+tests/python/#](examples/#g' \
  -e 's#\]\(\.\./(NOTICE|ARCHITECTURE\.md|CHANGELOG\.md|clients/)#](\1#g' \
  -e 's#\]\(docs/#](#g' \
  -e 's#\[([^]]*)\]\((\.\./)*(crates/|scripts/|fuzz/|tests/|README\.md)[^)]*\)#\1#g' {} +

find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
tar --create --directory "$stage" --sort=name --owner=0 --group=0 --numeric-owner . |
  gzip "-${level}n" >"$out/keyway-$version-$machine-linux.tar.gz"

if command -v dpkg-deb >/dev/null; then
  arch="$(dpkg --print-architecture)"
  size="$(du -sk "$stage" | cut -f 1)"
  mkdir "$stage/DEBIAN"
  sed "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@SIZE@/$size/" deploy/debian/control.in >"$stage/DEBIAN/control"
  echo /etc/keyway/keyway.toml >"$stage/DEBIAN/conffiles"
  for script in postinst prerm postrm; do
    install -m 0755 "deploy/debian/$script" "$stage/DEBIAN/$script"
  done
  find "$stage/DEBIAN" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --build -Zgzip "-z$level" --root-owner-group "$stage" "$out/keyway_${version}_$arch.deb" >/dev/null
else
  echo "package: no Debian package: dpkg-deb is missing" >&2
fi
rm -rf "$stage"
(cd "$out" && find . -maxdepth 1 -type f -name 'keyway*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
