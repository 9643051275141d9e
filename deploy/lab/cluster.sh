#!/usr/bin/env bash
# A private cluster in a folder on this machine, and ways to break it piece by
# piece. Sourced, it gives the functions; run, it does one of them:
#
#   cluster.sh new                 configuration and certificates, on free loopback ports
#   cluster.sh up                  start what does not run, wait until every node is idle
#   cluster.sh pid  ROLE [NODE]    the process of controller, engine, agent or shepherd
#   cluster.sh kill ROLE [NODE]    kill -9 it; the role node is agent and shepherd together
#   cluster.sh status              one line a process
#   cluster.sh env                 what a shell needs to use the cluster
#   cluster.sh down                cancel the jobs and stop everything
#
# CLUSTER_DIR   its folder (required; a short path, sockets live in it)
# CLUSTER_NODES=2 CLUSTER_CPUS=8 CLUSTER_GPUS=8 CLUSTER_MEM=16000 (MiB)
# CLUSTER_NAME=lab CLUSTER_PORT=     (empty: a free range of ports)
# CLUSTER_CONF  further lines of slurm.conf, one a line
# CLUSTER_BIN   folder of the programs (default: bin of this repository)
# CLUSTER_WAIT=120  seconds that coming up may take
#
# shellcheck shell=bash

cluster_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CLUSTER_BIN=${CLUSTER_BIN:-$cluster_root/bin}
CLUSTER_NODES=${CLUSTER_NODES:-2}
CLUSTER_CPUS=${CLUSTER_CPUS:-8}
CLUSTER_GPUS=${CLUSTER_GPUS:-8}
CLUSTER_MEM=${CLUSTER_MEM:-16000}
CLUSTER_NAME=${CLUSTER_NAME:-lab}
CLUSTER_CONF=${CLUSTER_CONF:-}
CLUSTER_WAIT=${CLUSTER_WAIT:-120}

cluster_say() { printf 'cluster: %s\n' "$*" >&2; }

# cluster_check: the settings make sense and the programs are there.
cluster_check() {
	: "${CLUSTER_DIR:?set CLUSTER_DIR to a folder for the cluster}"
	case $CLUSTER_DIR in /*) ;; *) CLUSTER_DIR=$PWD/$CLUSTER_DIR ;; esac
	# A socket's path has at most 107 bytes, and a shepherd's adds about 50 to this.
	if [ ${#CLUSTER_DIR} -gt 50 ]; then
		cluster_say "$CLUSTER_DIR is too long for the sockets in it: take a folder with a shorter path"
		return 1
	fi
	local program
	for program in muster musterd muster-agent muster-shepherd; do
		[ -x "$CLUSTER_BIN/$program" ] || { cluster_say "$CLUSTER_BIN/$program is missing: run make build"; return 1; }
	done
}

# port_free PORT: nothing listens there on the loopback.
port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# cluster_ports: the first of a range of free ports, below those that the
# kernel gives away.
cluster_ports() {
	local first i tries
	for tries in $(seq 100); do
		first=$((10000 + RANDOM % 20000))
		for i in $(seq 0 $((12 + CLUSTER_NODES))); do
			port_free $((first + i)) || continue 2
		done
		echo "$first"
		return
	done
	cluster_say "no range of free ports found in $tries tries"
	return 1
}

# cluster_new: writes the configuration, unless it is there.
cluster_new() {
	cluster_check || return
	[ ! -e "$CLUSTER_DIR/muster.yaml" ] || return 0
	local port line args=()
	port=${CLUSTER_PORT:-$(cluster_ports)} || return
	while IFS= read -r line; do
		[ -z "$line" ] || args+=(--conf "$line")
	done <<<"$CLUSTER_CONF"
	mkdir -p "$CLUSTER_DIR/jobs"
	chmod 1777 "$CLUSTER_DIR/jobs"
	"$CLUSTER_BIN/musterd" init --dir "$CLUSTER_DIR" --cluster "$CLUSTER_NAME" --port "$port" --nodes "$CLUSTER_NODES" \
		--cpus "$CLUSTER_CPUS" --gpus "$CLUSTER_GPUS" --mem "$CLUSTER_MEM" "${args[@]}" >&2
}

# cluster_env: to be evaluated by a shell that uses the cluster.
cluster_env() {
	printf 'export MUSTER_CONFIG=%q MUSTER_SOCKET=%q\n' "$CLUSTER_DIR/muster.yaml" "$CLUSTER_DIR/run/muster.sock"
	# shellcheck disable=SC2016 # for the shell that reads it
	printf 'export PATH=%q:"$PATH"\n' "$CLUSTER_BIN"
}

cluster_nodes() { local i; for i in $(seq "$CLUSTER_NODES"); do echo "node$i"; done; }

# cluster_up: starts what does not run and waits until no node is unknown or down.
cluster_up() {
	cluster_check || return
	"$CLUSTER_BIN/musterd" up --dir "$CLUSTER_DIR" --wait "${CLUSTER_WAIT}s" >&2 || return
	local until=$((SECONDS + CLUSTER_WAIT))
	until cluster_ready; do
		if [ "$SECONDS" -ge "$until" ]; then
			cluster_say "not every node is up after $CLUSTER_WAIT s; logs are in $CLUSTER_DIR/run"
			MUSTER_SOCKET=$CLUSTER_DIR/run/muster.sock "$CLUSTER_BIN/muster" sinfo >&2 || true
			return 1
		fi
		sleep 0.1
	done
}

# cluster_ready: as many nodes take jobs as there should be.
cluster_ready() {
	local n
	n=$(MUSTER_SOCKET=$CLUSTER_DIR/run/muster.sock "$CLUSTER_BIN/muster" sinfo -h -N -t idle,mix,alloc -o %N 2>/dev/null | sort -u | wc -l)
	[ "$n" -eq "$CLUSTER_NODES" ]
}

# cluster_pid ROLE [NODE]: prints the process, or fails.
cluster_pid() {
	local role=$1 node=${2:-node1} pid
	case $role in
	controller) pid=$(live "$CLUSTER_DIR/run/musterd.pid" musterd) ;;
	agent) pid=$(live "$CLUSTER_DIR/run/agent-$node.pid" muster-agent) ;;
	engine)
		pid=$(live "$CLUSTER_DIR/run/musterd.pid" musterd) || return
		pid=$(pgrep -P "$pid" -f embedded-clickhouse | head -n 1)
		;;
	shepherd) pid=$(pgrep -f -- "muster-shepherd .*$(quoted "$CLUSTER_DIR")/.*--node $node( |\$)" | head -n 1) ;;
	*) cluster_say "unknown role $role: controller, engine, agent or shepherd"; return 2 ;;
	esac
	[ -n "$pid" ] && echo "$pid"
}

# live FILE PROGRAM: the pid in a file, if that program runs under it.
live() {
	local pid exe
	pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] || return 1
	exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || return 1
	exe=${exe##*/}
	[ "${exe%% *}" = "$2" ] && echo "$pid"
}

# quoted TEXT: as a regular expression that matches it.
quoted() { printf '%s' "$1" | sed 's/[][\.*^$+?(){}|]/\\&/g'; }

# cluster_kill ROLE [NODE]: kill -9, and prints the process that is gone.
cluster_kill() {
	local pid other
	if [ "$1" = node ]; then
		pid=$(cluster_pid agent "${2:-node1}") && other=$(cluster_pid shepherd "${2:-node1}") || {
			cluster_say "no agent and shepherd of ${2:-node1} run"
			return 1
		}
		kill -9 "$pid" "$other" && echo "$pid+$other"
		return
	fi
	pid=$(cluster_pid "$@") || { cluster_say "no $* runs"; return 1; }
	kill -9 "$pid" && echo "$pid"
}

cluster_status() {
	local role node pid
	for role in controller engine; do
		pid=$(cluster_pid $role) && printf '%-10s pid %s\n' $role "$pid" || printf '%-10s not running\n' $role
	done
	for node in $(cluster_nodes); do
		for role in agent shepherd; do
			pid=$(cluster_pid $role "$node") && printf '%-10s %s pid %s\n' $role "$node" "$pid" || printf '%-10s %s not running\n' $role "$node"
		done
	done
}

# cluster_down: ends the jobs, the daemons and the shepherds, which outlive
# their agents. It goes on where something is gone already.
cluster_down() {
	cluster_check || return
	local rc=0 node pid
	"$CLUSTER_BIN/musterd" down --dir "$CLUSTER_DIR" --jobs >&2 || rc=1
	if [ "$rc" -ne 0 ]; then
		"$CLUSTER_BIN/musterd" down --dir "$CLUSTER_DIR" >&2 || true
	fi
	for node in $(cluster_nodes); do
		while pid=$(cluster_pid shepherd "$node"); do
			kill "$pid" 2>/dev/null || true
			gone "$pid" || kill -9 "$pid" 2>/dev/null || true
		done
	done
	return "$rc"
}

# gone PID: it ends within five seconds.
gone() {
	local i
	for i in $(seq 50); do
		[ -d "/proc/$1" ] || return 0
		sleep 0.1
	done
	cluster_say "process $1 does not end after $((i / 10)) s"
	return 1
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	set -euo pipefail
	verb=${1:-}
	shift || true
	case $verb in
	new | up | pid | kill | status | env | down)
		cluster_check
		"cluster_$verb" "$@"
		;;
	*)
		sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
		exit 2
		;;
	esac
fi
