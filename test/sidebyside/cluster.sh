#!/usr/bin/env bash
# Starts a cluster in namespaces of its own: a real Slurm of Debian, or Muster. Both have two
# nodes of 8 CPUs and 8 GPUs, the partitions gpu and debug, and the users alice, bob and carol.
#
#   cluster.sh up slurm|muster DIR     start it (as root, on Debian; about half a minute)
#   cluster.sh run DIR USER COMMAND    run a command line as a user of it
#   cluster.sh down DIR                end it and everything in it
#
# The root of each is an overlay over this machine's, so that packages, users and processes of
# the clusters leave nothing behind here. Processes, network and host name are their own too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)

die() { echo "cluster.sh: $*" >&2; exit 1; }

need() {
	[ "$(id -u)" = 0 ] || die "namespaces and users need root"
	for tool in unshare nsenter apt-get runuser; do
		command -v "$tool" >/dev/null || die "$tool is missing: Debian's util-linux and apt have it"
	done
	grep -q overlay /proc/filesystems || modprobe overlay 2>/dev/null || die "this kernel has no overlay file system"
}

up() {
	local kind=$1 dir=$2
	need
	[ ! -e "$dir/pid" ] || die "$dir is in use: cluster.sh down $dir"
	mkdir -p "$dir/upper" "$dir/work" "$dir/root"
	setsid unshare --mount --pid --net --uts --fork --kill-child \
		"$0" inside "$kind" "$dir" >"$dir/log" 2>&1 </dev/null &
	local parent=$!
	for _ in $(seq 3000); do
		[ -e "$dir/upper/ready" ] && break
		kill -0 "$parent" 2>/dev/null || { tail -20 "$dir/log" >&2; die "$kind did not start: $dir/log"; }
		sleep 0.1
	done
	[ -e "$dir/upper/ready" ] || { tail -20 "$dir/log" >&2; die "$kind was not ready after five minutes: $dir/log"; }
	pgrep -P "$parent" >"$dir/pid"
	echo "$parent" >"$dir/parent"
}

# inside is the first process of the namespaces. It ends with everything in them.
inside() {
	local kind=$1 dir=$2
	ip link set lo up
	# Names resolve to IPv4 only where an interface other than lo has such an address.
	ip link add side0 type veth peer name side1
	ip addr add 192.0.2.1/24 dev side0
	ip link set side0 up
	ip link set side1 up
	mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
	mount -t proc proc "$dir/root/proc"
	mount --rbind /sys "$dir/root/sys"
	mount --rbind /dev "$dir/root/dev"
	mount -t tmpfs tmpfs "$dir/root/run"
	mount -t tmpfs tmpfs "$dir/root/tmp"
	chmod 1777 "$dir/root/tmp"
	cp "$here/inside.sh" "$dir/root/inside.sh"
	rm -f "$dir/root/ready"
	if [ "$kind" = muster ]; then
		mkdir -p "$dir/root/opt/muster"
		find "$repo/bin" -maxdepth 1 -type f -exec cp -t "$dir/root/opt/muster" {} +
	fi
	exec chroot "$dir/root" /bin/bash /inside.sh "$kind"
}

# packages puts the real Slurm into the overlay: with the network of the machine.
packages() {
	local dir=$1
	need
	[ ! -e "$dir/packages.done" ] || return 0
	mkdir -p "$dir/upper/var/lib" "$dir/work" "$dir/root"
	# What this machine has installed is copied while nobody installs anything here: an
	# installation on both sides of the overlay would leave either list of packages torn.
	apt-get -qq -o DPkg::Lock::Timeout=600 check || die "another installation on this machine does not end"
	cp -a /var/lib/dpkg /var/lib/apt "$dir/upper/var/lib/"
	rm -f "$dir"/upper/var/lib/dpkg/lock* "$dir"/upper/var/lib/apt/lists/lock
	unshare --mount bash -euo pipefail -c '
		mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
		for d in proc sys dev; do mount --rbind "/$d" "$1/root/$d"; done
		mount -t tmpfs tmpfs "$1/root/run"
		printf "#!/bin/sh\nexit 101\n" >"$1/root/usr/sbin/policy-rc.d" # no service starts by itself
		chmod +x "$1/root/usr/sbin/policy-rc.d"
		export DEBIAN_FRONTEND=noninteractive
		chroot "$1/root" apt-get -qq update
		chroot "$1/root" apt-get -qq install -y --no-install-recommends slurm-wlm slurmdbd slurm-client \
			slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server mariadb-client
	' packages "$dir" >"$dir/packages.log" 2>&1 ||
		{ tail -20 "$dir/packages.log" >&2; die "Slurm's packages cannot be installed: $dir/packages.log"; }
	touch "$dir/packages.done" # slurmctld is a link that leads nowhere outside the overlay
}

run() {
	local dir=$1 user=$2 line=$3
	local home=/home/$user
	[ "$user" != root ] || home=/root
	exec nsenter --target "$(cat "$dir/pid")" --mount --pid --net --uts --root --wd \
		/usr/sbin/runuser -u "$user" -- /usr/bin/env -i \
		HOME="$home" USER="$user" LOGNAME="$user" LANG=C.UTF-8 TZ=UTC SHELL=/bin/bash \
		PATH=/opt/names:/opt/muster:/usr/local/bin:/usr/bin:/bin MUSTER_SOCKET=/srv/lab/run/muster.sock \
		/bin/bash -c "cd $home && $line"
}

down() {
	local dir=$1
	if [ -e "$dir/parent" ]; then
		kill -KILL "$(cat "$dir/pid")" 2>/dev/null || true
		while kill -0 "$(cat "$dir/parent")" 2>/dev/null; do sleep 0.05; done
	fi
	rm -f "$dir/pid" "$dir/parent"
	# What a cluster wrote goes, the packages stay for the next time.
	rm -rf "$dir"/upper/{srv,home,ready,var/lib/peer,var/spool/peer,var/log/peer}
}

case ${1:-} in
up)
	[ $# = 3 ] || die "usage: cluster.sh up slurm|muster DIR"
	[ "$2" != slurm ] || packages "$3"
	up "$2" "$3"
	;;
inside) inside "$2" "$3" ;;
run) [ $# = 4 ] || die "usage: cluster.sh run DIR USER COMMAND"; run "$2" "$3" "$4" ;;
down) [ $# = 2 ] || die "usage: cluster.sh down DIR"; down "$2" ;;
*) die "usage: cluster.sh up|run|down ..." ;;
esac
