#!/bin/sh
# Installs what building and testing need beyond Go, on Debian 12 and its kin.
#
#   deploy/deps/install.sh              everything below
#   deploy/deps/install.sh build        what `make build` needs; `make demo` and `make test` run this
#   deploy/deps/install.sh vm       what `make test-vm` needs; not part of everything
#   deploy/deps/install.sh kube     what `make test-kube` needs; not part of everything
#   deploy/deps/install.sh --list       print the packages, install nothing
#
# As root it installs what is missing. Otherwise it prints the command to run and fails, unless nothing is missing.
# A command that is there already is never replaced, wherever it came from.
set -eu

# table prints: command or file, Debian package, group, why.
table() {
	cat <<'TABLE'
make    make                build  runs the targets
gcc     gcc                 build  the GPU libraries are loaded through C, and the race detector needs it
/usr/include/stdlib.h libc6-dev build headers for the same
git     git                 build  versions and clean checks
npm     npm                 test   the dashboards are held to the types of Grafana, the pages of the console to axe-core
/etc/ssl/certs/ca-certificates.crt ca-certificates build HTTPS of go and npm
curl    curl                build  fetches the ClickHouse engine library; the tour asks the metrics
diff    diffutils           test   comparisons of generated files
ps      procps              test   the kill tests look at processes
ip      iproute2            test   a cluster of several machines, each in a network of its own
nsenter util-linux          test   the same
protoc  protobuf-compiler   test   make generate and make check
rsyslogd rsyslog            test   a real receiver of the audit trail
/usr/share/doc/rsyslog-gnutls rsyslog-gnutls test the same over TLS
munged  munge               test   a real MUNGE lets in commands of hosts without an agent
promtool prometheus         test   the alert rules are tried in it, and the end-to-end tests run it
amtool  prometheus-alertmanager test the same for Alertmanager
chromium chromium           test   the screenshot of the dashboards, and make test-console
mpicc.mpich mpich           test   a real MPI program over PMI, in a step
/usr/share/doc/libmpich-dev libmpich-dev test the same
mpirun.openmpi openmpi-bin  test   Open MPI's own launcher in an allocation
mpicc.openmpi libopenmpi-dev test  the same
pkg-config pkg-config       test   finds libpmix for make build
/usr/share/doc/libpmix-dev libpmix-dev test srun --mpi=pmix: the library of muster-pmix, which make build leaves out without it
/usr/include/security/pam_modules.h libpam0g-dev test logins that see their job's private folders: the headers of pam_muster.so, which make build leaves out without them
Xvfb    xvfb                test   a real X server, for srun --x11
xauth   xauth               test   its cookies
xdpyinfo x11-utils          test   a real X client
/usr/sbin/sshd openssh-server test logins on a node through PAM
ssh     openssh-client      test   the same
qemu-system-x86_64 qemu-system-x86 vm boots a machine with cgroup v2 only, for make test-vm
/usr/share/doc/linux-image-cloud-amd64 linux-image-cloud-amd64 vm its kernel
/usr/share/doc/busybox-static busybox-static vm its shell
cpio    cpio                vm     packs its files
etcd    etcd-server         kube   the store of a real Kubernetes
TABLE
}

only=
list=no
for arg in "$@"; do
	case $arg in
	build | test | vm | kube) only=$arg ;;
	--list) list=yes ;;
	*) echo "usage: $0 [build|test|vm|kube] [--list]" >&2; exit 2 ;;
	esac
done

missing=
while read -r what package group _; do
	[ -n "$what" ] || continue
	case $only in
	'') case $group in vm | kube) continue ;; esac ;; # they are large or run as a service, and one target needs them
	*) [ "$only" = "$group" ] || continue ;;
	esac
	[ "$list" = no ] || { echo "$package"; continue; }
	case $what in
	/*) [ ! -e "$what" ] || continue ;;
	*) ! command -v "$what" >/dev/null 2>&1 || continue ;;
	esac
	missing="$missing $package"
done <<LINES
$(table)
LINES
[ "$list" = no ] || exit 0

want=$(sed -n 's/^go //p' "$(dirname -- "$0")/../../go.mod")
if ! command -v go >/dev/null 2>&1; then
	echo "deps: Go is missing: install Go $want or later from https://go.dev/dl and put it on PATH" >&2
	exit 1
fi
have=$(cd "$(dirname -- "$0")/../.." && go env GOVERSION | sed 's/^go//')
if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
	echo "deps: Go $have is too old: Go $want or later is needed (https://go.dev/dl)" >&2
	exit 1
fi

if [ -z "$missing" ]; then
	echo "deps: everything is there"
	exit 0
fi
command="apt-get update && apt-get install -y --no-install-recommends$missing"
if ! command -v apt-get >/dev/null 2>&1; then
	echo "deps: missing, and there is no apt-get here; these are their Debian names:$missing" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "deps: missing:$missing. As root, run:" >&2
	echo "  $command" >&2
	exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # a list of packages
apt-get install -y -q --no-install-recommends $missing
