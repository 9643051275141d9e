#!/usr/bin/env bash
# Packages of what `make build` made, for Debian and Ubuntu (.deb) and for RHEL, Rocky and SUSE
# (.rpm): build.sh [FOLDER]
#
# FOLDER is where they go; bin/packages by default. The files of each package are listed in the
# YAML file of its name beside this script.
#
#   FORMATS="deb rpm"   which kinds
#   VERSION=1.2.3       by default 0.1.0, the day and the commit, which sorts before 0.1.0
#   ENGINE=1            the ClickHouse engine too: muster-engine, 180 MB
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-bin/packages}")
nfpm=v2.45.0 # of github.com/goreleaser/nfpm; the newer ones need modules outside the usual hosts

need() {
	[ -e "$1" ] || { echo "packages: $1 is not there: $2" >&2; exit 1; }
}
for program in muster muster-top muster-sbatch muster-munge musterd muster-agent muster-shepherd; do
	need "bin/$program" "run make build"
done
for helper in muster-pmix pam_muster.so; do
	need "bin/$helper" "install what deploy/deps/install.sh lists, then run make build"
done

# Its first use fetches it. Status 3 tells this failure from all others.
maker() { go run "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm" "$@"; }
maker --version >/dev/null || {
	echo "packages: nfpm $nfpm cannot be fetched: see the lines above, and check GOPROXY" >&2
	exit 3
}

stage=bin/stage
rm -rf "$stage"
mkdir -p "$stage"/{names,pages,muster/man1,slurm/man1,slurm/completions,completions} "$out"

# Slurm's names are a package of their own: it cannot be beside Slurm's own commands.
bin/muster links "$stage/names" >/dev/null
for link in "$stage"/names/*; do
	program=$(basename "$(readlink "$link")")
	ln -sfn "$program" "$link"
done
bin/muster man --dir "$stage/pages" >/dev/null
gzip -9n "$stage"/pages/*.1
mv "$stage"/pages/muster*.1.gz "$stage/muster/man1"
mv "$stage"/pages/*.1.gz "$stage/slurm/man1"
for shell in bash zsh fish; do
	bin/muster completion "$shell" >"$stage/completions/$shell"
done
for link in "$stage"/names/*; do # bash looks for a file of the command's name
	ln -s muster "$stage/slurm/completions/$(basename "$link")"
done

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # so that the same commit gives the same packages
export SOURCE_DATE_EPOCH
version=${VERSION:-0.1.0~$(git log -1 --format=%cd --date=format:%Y%m%d).$(git rev-parse --short=8 HEAD)}
export PACKAGE_VERSION=$version
case $(go env GOARCH) in
amd64) export PACKAGE_LIBDIR=/usr/lib/x86_64-linux-gnu ;;
arm64) export PACKAGE_LIBDIR=/usr/lib/aarch64-linux-gnu ;;
esac
PACKAGE_ARCH=$(go env GOARCH)
export PACKAGE_ARCH

packages=(muster muster-slurm muster-controller muster-node)
if [ "${ENGINE:-}" = 1 ]; then
	PACKAGE_ENGINE=$(deploy/engine/fetch.sh | tail -n 1)
	export PACKAGE_ENGINE
	packages+=(muster-engine)
fi
for package in "${packages[@]}"; do
	for format in ${FORMATS:-deb rpm}; do
		maker package \
			--config "deploy/packages/$package.yaml" --packager "$format" --target "$out/" |
			sed -n 's/^created package: /packages: /p'
	done
done
