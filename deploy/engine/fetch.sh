#!/bin/sh
# Puts the ClickHouse engine library (libchdb.so) into a cache outside the source tree and prints its path.
#
#   deploy/engine/fetch.sh            fetch when missing; the last line of standard output is the path
#   deploy/engine/fetch.sh --verify   also recompute the checksum of what is already there
#   deploy/engine/fetch.sh --path     print where the library belongs, fetch nothing
#
# MUSTER_LIBCHDB=/path/libchdb.so     use this library; nothing is fetched
# MUSTER_CLICKHOUSE_DSN=...           use a ClickHouse server; nothing is fetched, nothing is printed
# MUSTER_CACHE, XDG_CACHE_HOME        where caches live (default ~/.cache/muster)
# MUSTER_LIBCHDB_TARBALL=/path.tgz    take the package from a file (a machine without network)
# MUSTER_LIBCHDB_SHA512=hex           the tarball's checksum, for a machine type without a pinned one
#
# The package comes through `npm pack`, so npm's own configuration (proxy, mirror, cache) applies; where there is no npm, through curl.
# It is checked against ./checksums before it is unpacked and again after, and renamed into place as the last step:
# a library at the final path has been verified.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=''
child=''

say() { printf '%s\n' "fetch engine: $*" >&2; }

cleanup() {
	[ -z "$child" ] || kill "$child" 2>/dev/null || :
	[ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# die REASON: the reason, then every way out, then exit 1.
die() {
	say "$1"
	cat >&2 <<END

  Ways out:
    1. network:            with npm, whose settings for proxies and mirrors apply, or curl
    2. a library you have: MUSTER_LIBCHDB=/path/to/libchdb.so
    3. a package you have: MUSTER_LIBCHDB_TARBALL=/path/to/$tarball
                           (on a connected machine: npm pack $package@$version)
    4. a ClickHouse server: MUSTER_CLICKHOUSE_DSN='http://user:password@host:8123/muster' (nothing is fetched)
END
	exit 1
}

# sum BITS FILE prints the hex digest.
sum() {
	if command -v "sha$1sum" >/dev/null 2>&1; then
		"sha$1sum" "$2" | cut -d' ' -f1
	elif command -v shasum >/dev/null 2>&1; then
		shasum -a "$1" "$2" | cut -d' ' -f1
	elif command -v openssl >/dev/null 2>&1; then
		openssl dgst "-sha$1" -r "$2" | cut -d' ' -f1
	else
		die "no tool to compute checksums (sha$1sum, shasum or openssl)"
	fi
}

size_of() { wc -c <"$1" | tr -d ' '; }

verify=no
only_path=no
for arg in "$@"; do
	case $arg in
	--verify) verify=yes ;;
	--path) only_path=yes ;;
	*) printf '%s\n' "usage: $0 [--verify | --path]" >&2; exit 2 ;;
	esac
done

if [ -n "${MUSTER_CLICKHOUSE_DSN:-}" ]; then
	say 'MUSTER_CLICKHOUSE_DSN is set: the embedded engine is not needed'
	exit 0
fi

machine=$(uname -m)
[ "$machine" != arm64 ] || machine=aarch64
line=$(grep "^$machine " "$here/checksums" || :)
if [ -z "$line" ] || [ "$(uname -s)" != Linux ]; then
	# shellcheck disable=SC2086
	set -- - @chdb/lib-linux-x64-gnu 26.7.3-stable.1 - - -
else
	# shellcheck disable=SC2086
	set -- $line
fi
package=$2 version=$3 want_size=$4 want_512=$5 want_256=$6
tarball="$(printf '%s' "$package" | sed 's/^@//; s,/,-,')-$version.tgz"

if [ -n "${MUSTER_LIBCHDB:-}" ]; then
	[ -r "$MUSTER_LIBCHDB" ] || die "MUSTER_LIBCHDB=$MUSTER_LIBCHDB cannot be read"
	say "using MUSTER_LIBCHDB=$MUSTER_LIBCHDB"
	printf '%s\n' "$MUSTER_LIBCHDB"
	exit 0
fi
if [ -z "$line" ] || [ "$(uname -s)" != Linux ]; then
	die "no engine package is known for $(uname -s) on $machine"
fi

home_cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${MUSTER_CACHE:-${home_cache:+$home_cache/muster}}
[ -n "$cache" ] || die 'neither HOME nor MUSTER_CACHE is set: no place for the cache'
dir="$cache/engine/$version"
lib="$dir/libchdb.so"

if [ "$only_path" = yes ]; then
	printf '%s\n' "$lib"
	exit 0
fi

if [ "$want_512" = - ]; then
	[ -n "${MUSTER_LIBCHDB_SHA512:-}" ] || [ -f "$lib" ] || die "no checksum is pinned for $package: give the one you trust in MUSTER_LIBCHDB_SHA512"
	want_512=${MUSTER_LIBCHDB_SHA512:-}
fi

if [ -f "$lib" ]; then
	if [ "$want_size" != - ] && [ "$(size_of "$lib")" != "$want_size" ]; then
		say "$lib has the wrong size: fetching it again"
	elif [ "$verify" = yes ] && [ "$want_256" != - ] && [ "$(sum 256 "$lib")" != "$want_256" ]; then
		say "$lib has the wrong checksum: fetching it again"
	else
		printf '%s\n' "$lib"
		exit 0
	fi
fi

mkdir -p "$dir" || die "cannot create $dir"
# Beside the target, so that the last step is a rename within one file system.
work=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write in $dir"

if [ -n "${MUSTER_LIBCHDB_TARBALL:-}" ]; then
	[ -r "$MUSTER_LIBCHDB_TARBALL" ] || die "MUSTER_LIBCHDB_TARBALL=$MUSTER_LIBCHDB_TARBALL cannot be read"
	case $MUSTER_LIBCHDB_TARBALL in
	/*) got=$MUSTER_LIBCHDB_TARBALL ;;
	*) got=$PWD/$MUSTER_LIBCHDB_TARBALL ;;
	esac
	say "taking $got"
else
	if command -v npm >/dev/null 2>&1; then
		with=npm
		(cd "$work" && exec npm pack --silent "$package@$version") >"$work/get.out" 2>"$work/get.err" &
	elif command -v curl >/dev/null 2>&1; then
		with=curl
		curl -fsSL --retry 3 -o "$work/$tarball" "https://registry.npmjs.org/$package/-/${package##*/}-$version.tgz" >"$work/get.out" 2>"$work/get.err" &
	else
		die 'neither npm nor curl is installed, and the engine library is published as an npm package'
	fi
	child=$!
	say "getting $package@$version with $with (178 MB, once)"
	seconds=0
	while kill -0 "$child" 2>/dev/null; do
		sleep 1
		seconds=$((seconds + 1))
		[ $((seconds % 5)) -ne 0 ] || say "  still downloading, $seconds s"
	done
	if wait "$child"; then child=''; else
		child=''
		sed 's/^/  /' "$work/get.err" "$work/get.out" | grep -v '^ *$' | tail -5 >&2 || :
		die "getting $package@$version with $with failed (its words are above)"
	fi
	got="$work/$tarball"
	[ -f "$got" ] || die "$with reported success but left no $tarball"
fi

say 'checking the package'
have=$(sum 512 "$got")
[ "$have" = "$want_512" ] || die "the package's sha512 is $have, but $want_512 is pinned: not using it"

say 'unpacking (566 MB)'
command -v tar >/dev/null 2>&1 || die 'tar is not installed'
(cd "$work" && tar -xzf "$got" package/libchdb.so) || die "cannot unpack into $dir (is there room for 800 MB?)"
if [ "$want_256" != - ]; then
	have=$(sum 256 "$work/package/libchdb.so")
	[ "$have" = "$want_256" ] || die "libchdb.so's sha256 is $have, but $want_256 is pinned: not using it"
fi
chmod 0644 "$work/package/libchdb.so"
mv -f "$work/package/libchdb.so" "$lib"
say "ready: $lib"
printf '%s\n' "$lib"
