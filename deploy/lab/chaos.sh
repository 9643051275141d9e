#!/usr/bin/env bash
# Kills every kind of process of a cluster with kill -9, or stops it for some
# seconds, KILLS times under load, then loses a node with its leases, a byte of the
# ledger, and the controller's disk some seconds after a backup, and counts what
# was lost. The last line is
#   acked N lost L double-run D unaccounted U
# and the exit status is 0 only if the last three are 0.
#
#   KILLS=50    processes to kill (5 for a quick run)
#   SEED=       of every random choice; a run prints the one it took
#   RATE=15     sbatch commands a second; STREAM=10 jobs a second through the streaming API
#   ROLES=controller,engine,agent,shepherd,node,hang   what to kill (node: agent and shepherd
#                together) or to stop for a while (hang: one of controller, agent, shepherd)
#   SCENARIOS=silence,flip,restore   what is played once each after the kills; empty for none
#   CHAOS_DIR=  folder of the cluster (default: a new one, removed when all went well)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
KILLS=${KILLS:-50}

export CLUSTER_DIR=${CHAOS_DIR:-}
[ -n "$CLUSTER_DIR" ] || CLUSTER_DIR=$(mktemp -d /tmp/muster-chaos.XXXXXX)
export CLUSTER_NAME=chaos CLUSTER_NODES=2 CLUSTER_CPUS=8 CLUSTER_GPUS=8
export CLUSTER_CONF=$'MaxJobCount=200000\nSlurmdTimeout=15\nKillWait=2\nFencingPolicy=lease=15'
# shellcheck source=deploy/lab/cluster.sh
. "$here/cluster.sh"

[ ! -e "$CLUSTER_DIR/muster.yaml" ] || { echo "chaos: $CLUSTER_DIR holds a cluster already: every run takes a new one" >&2; exit 2; }
mkdir -p "$CLUSTER_DIR"
# Jobs run as whoever submits, and must reach their script.
chmod 755 "$CLUSTER_DIR"

programs=$CLUSTER_DIR/programs
mkdir -p "$programs"
(cd "$root" && go build -o "$programs/chaos" ./test/chaos && go build -o "$programs/check" ./test/chaos/check)

rc=0
# shellcheck disable=SC2317 # the trap calls it
down() {
	cluster_down >"$CLUSTER_DIR/down.log" 2>&1 || true
	if [ "$rc" -eq 0 ]; then
		rm -rf "$CLUSTER_DIR"
	else
		echo "chaos: logs, list and side effects are in $CLUSTER_DIR" >&2
	fi
}
trap 'rc=130; exit 130' INT TERM
trap down EXIT

cluster_new >"$CLUSTER_DIR/init.log" 2>&1 || { rc=1; cat "$CLUSTER_DIR/init.log" >&2; exit 1; }
cluster_up || { rc=1; exit 1; }
eval "$(cluster_env)"
for tool in squeue sinfo sacct muster musterd; do
	program=muster
	[ "$tool" != musterd ] || program=musterd
	[ -e "$programs/$tool" ] || ln -s "$CLUSTER_BIN/$program" "$programs/$tool"
done
[ -e "$programs/sbatch" ] || ln -s "$CLUSTER_BIN/muster-sbatch" "$programs/sbatch"

"$programs/chaos" -cluster "$here/cluster.sh" -dir "$CLUSTER_DIR" -bin "$programs" -kills "$KILLS" -nodes "$CLUSTER_NODES" \
	${SEED:+-seed "$SEED"} ${RATE:+-rate "$RATE"} ${STREAM:+-stream "$STREAM"} ${ROLES:+-roles "$ROLES"} \
	-scenarios "${SCENARIOS-silence,flip,restore}" || rc=$?
[ "$rc" -eq 0 ] || cluster_status >&2
# The verdict is printed whatever happened before.
"$programs/check" -acked "$CLUSTER_DIR/chaos/acked" -effects "$CLUSTER_DIR/chaos/effects" \
	-losses "$CLUSTER_DIR/chaos/losses" -bin "$programs" || rc=$?
exit "$rc"
