#!/usr/bin/env bash
# Measures a real Slurm and Muster by turns, on this machine, in the same
# quarter of an hour, and prints the ratios.
#
#   PEER=DIR     the folder of a running Slurm that was set up to be measured: it holds ctl.sh, b2.sh,
#                mkemu.sh and b6.py, and its commands (sbatch, squeue, sdiag) are on PATH
#   ROUNDS=3     turns; the median counts
#   JOBS=2000    no-op jobs of a turn (Slurm runs PEER_JOBS=500 of them)
#   RESTART=1    also restart both controllers with 8,800 waiting jobs (0: leave that out)
#   OUT=FILE     where the figures go too (default: bin/bench-peer.txt)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
ROUNDS=${ROUNDS:-3}
JOBS=${JOBS:-2000}
PEER_JOBS=${PEER_JOBS:-500}
OUT=${OUT:-$root/bin/bench-peer.txt}

no_peer() {
	echo "bench-peer: $1" >&2
	echo "  PEER names the folder of a real Slurm to measure beside. It must hold ctl.sh, b2.sh, mkemu.sh and b6.py" >&2
	echo "  (helper scripts of that installation), and slurmctld, slurmdbd and the slurmds must run. Then:" >&2
	echo "    make bench-peer PEER=/path/of/it" >&2
	exit 2
}
[ -n "${PEER:-}" ] || no_peer 'PEER is not set, so there is nothing to compare with'
for f in ctl.sh b2.sh mkemu.sh b6.py; do [ -f "$PEER/$f" ] || no_peer "$PEER/$f is missing"; done
slurm_sbatch=$(command -v sbatch) || no_peer "Slurm's sbatch is not on PATH"
case $("$slurm_sbatch" --version) in slurm*) ;; *) no_peer "$slurm_sbatch is not Slurm's" ;; esac
[ "$(timeout 20 sinfo -h -t idle -o %D | head -n 1)" = 2 ] || no_peer "Slurm does not answer with two idle nodes (sinfo)"

export CLUSTER_DIR=${CLUSTER_DIR:-$(mktemp -d /tmp/muster-peer.XXXXXX)}
export CLUSTER_NAME=bench CLUSTER_NODES=2 CLUSTER_CPUS=8 CLUSTER_GPUS=8
export CLUSTER_CONF=$'MaxJobCount=2000000\nMaxArraySize=2000001'
# shellcheck source=deploy/lab/cluster.sh
. "$here/cluster.sh"
chmod 755 "$CLUSTER_DIR"
bench=$CLUSTER_BIN/muster-bench
[ -x "$bench" ] || { echo "bench-peer: $bench is missing: run make build" >&2; exit 1; }
mkdir -p "$CLUSTER_DIR/tools"
for tool in scancel squeue; do ln -sf "$CLUSTER_BIN/muster" "$CLUSTER_DIR/tools/$tool"; done
ln -sf "$CLUSTER_BIN/muster-sbatch" "$CLUSTER_DIR/tools/sbatch"

# shellcheck disable=SC2317 # the trap calls it
down() {
	local rc=$?
	cluster_down >"$CLUSTER_DIR/down.log" 2>&1 || true
	if [ "$rc" -eq 0 ]; then rm -rf "$CLUSTER_DIR"; else echo "bench-peer: logs are in $CLUSTER_DIR" >&2; fi
}
trap down EXIT
cluster_new 2>"$CLUSTER_DIR/init.log"
cluster_up
export MUSTER_CONFIG=$CLUSTER_DIR/muster.yaml MUSTER_SOCKET=$CLUSTER_DIR/run/muster.sock

printf '#!/bin/sh\n:\n' >"$CLUSTER_DIR/noop.sh"
chmod 755 "$CLUSTER_DIR/noop.sh"
mkdir -p "$(dirname "$OUT")"

say() { printf '%s\n' "$*" | tee -a "$OUT"; }

# field NAME: a number out of the JSON on standard input.
field() { sed -n "s/^ *\"$1\": \\([0-9.]*\\),*\$/\\1/p" | head -n 1; }

# median of the numbers given.
median() { printf '%s\n' "$@" | sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.1f", a / b; else printf "-" }'; }

# held WHO CLIENTS TIMES: sbatch processes a second for jobs that are held.
held() {
	local sbatch=$slurm_sbatch
	[ "$1" = slurm ] || sbatch=$CLUSTER_DIR/tools/sbatch
	"$bench" command -q --json --clients "$2" --times "$3" -- "$sbatch" --parsable -H -o /dev/null "$CLUSTER_DIR/noop.sh" | field per_second
}

clear_queue() {
	if [ "$1" = slurm ]; then
		scancel -u "$(id -un)"
		while [ -n "$(squeue -h | head -n 1)" ]; do sleep 0.5; done
	else
		"$CLUSTER_DIR/tools/scancel" -u "$(id -un)"
		while [ -n "$("$CLUSTER_DIR/tools/squeue" -h | head -n 1)" ]; do sleep 0.2; done
	fi
}

# through WHO: no-op jobs a second from the first submission to the last end.
# Slurm's are counted by slurmctld as completed, Muster's when their rows are
# in ClickHouse.
through() {
	if [ "$1" = slurm ]; then
		local best=0 mode out
		for mode in array many; do
			out=$(bash "$PEER/b2.sh" "$mode" "$PEER_JOBS" "$mode" | sed -n 's/.* \([0-9.]*\) jobs\/s.*/\1/p')
			best=$(printf '%s\n' "$best" "$out" | sort -n | tail -n 1)
		done
		echo "$best"
	else
		"$bench" run -q --json --jobs "$JOBS" >"$CLUSTER_DIR/run.json"
		field jobs_per_second <"$CLUSTER_DIR/run.json"
	fi
}

declare -A figures
note() { figures[$1]="${figures[$1]:-} $2"; }

: >"$OUT"
say "$(date -u +%FT%TZ) Muster $("$CLUSTER_BIN/muster" --version 2>/dev/null | head -n 1) beside $("$slurm_sbatch" --version), $(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg)"
printf '#!/bin/sh\n:\n' >"$PEER/bench/noop.sh"
for round in $(seq "$ROUNDS"); do
	for who in slurm muster; do
		note "$who 1" "$(held $who 1 300)"
		note "$who 4" "$(held $who 4 600)"
		clear_queue $who
		note "$who run" "$(through $who)"
		say "round $round $who: sbatch ${figures["$who 1"]##* }/s by one, ${figures["$who 4"]##* }/s by four, no-op jobs ${figures["$who run"]##* }/s, load $(cut -d' ' -f1 /proc/loadavg)"
	done
	note share "$(field share_of_xargs <"$CLUSTER_DIR/run.json")"
done

# shellcheck disable=SC2086 # lists of numbers
compare() {
	local slurm muster
	slurm=$(median ${figures["slurm $1"]})
	muster=$(median ${figures["muster $1"]})
	say "$(printf '%-38s Slurm %8.1f/s   Muster %8.1f/s   ratio %6s   (aim %s)' "$2" "$slurm" "$muster" "$(ratio "$muster" "$slurm")" "$3")"
}
compare 1 'sbatch processes, one client' '2'
compare 4 'sbatch processes, four clients' '2'
compare run 'no-op jobs end to end' '8'
# shellcheck disable=SC2086
say "no-op jobs as a share of what xargs -P4 forks: $(median ${figures[share]}) (aim 0.5)"

if [ "${RESTART:-1}" = 1 ]; then
	say 'restart with 8,800 waiting jobs:'
	(
		cd "$PEER"
		bash mkemu.sh 1000
		rm -rf emu/state && mkdir -p emu/state && chown slurm emu/state
		export SLURM_CONF=$PEER/emu/slurm.conf
		setsid slurmctld -f "$SLURM_CONF"
		for _ in $(seq 100); do sinfo -h >/dev/null 2>&1 && break; sleep 0.2; done
		"$bench" command -q --clients 4 --times 8800 -- sbatch -Q -H -o /dev/null "$PEER/bench/noop.sh" >/dev/null
		python3 b6.py | sed 's/^/  Slurm:  /'
		kill "$(cat emu/slurmctld.pid)"
	) | tee -a "$OUT"
	cluster_down >"$CLUSTER_DIR/down.log" 2>&1
	"$bench" restart -q --jobs 8800 --events 0 --tail 0 --times 5 | sed 's/^/  Muster: /' | tee -a "$OUT"
fi
say "load at the end $(cut -d' ' -f1-3 /proc/loadavg); the figures are in $OUT"
