#!/usr/bin/env bash
# The lab: a cluster on this machine with simulated GPUs, in steps.
#   lab.sh up | demo | drain | evidence [FOLDER] | down
# LAB names its folder (default: lab in the working directory).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
LAB=${LAB:-$PWD/lab}
PORT=${LAB_PORT:-6817}
BIN=${MUSTER_BIN:-$root/bin}
export MUSTER_SOCKET=$LAB/run/muster.sock

m() { "$BIN/muster" "$@"; }

say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }

die() { echo "lab: $*" >&2; exit 1; }

# expect WHAT COMMAND...: runs the command until it succeeds, 30 s at most.
expect() {
	local what=$1 i; shift
	for i in $(seq 300); do
		if "$@" >/dev/null 2>&1; then printf '  ok    %s\n' "$what"; return 0; fi
		sleep 0.1
	done
	printf '  FAIL  %s\n' "$what"
	"$@" || true
	FAILED=$((FAILED + 1))
}

FAILED=0

# squeue's answer for some jobs in one state, counted.
count() { m squeue -h -r -t "$1" "${@:2}" -o %i | wc -l; }

is() { [ "$1" = "$2" ] || { echo "is $1, expected $2"; return 1; }; }
running() { is "$(count R "${@:2}")" "$1"; }
pending() { is "$(count PD "${@:2}")" "$1"; }
reason() { is "$(m squeue -h -t PD -j "$1" -o %r | sort -u)" "$2"; }
state() { is "$(m sacct -n -X -P -j "$1" -o State | sort -u | head -1)" "$2"; }

submit() { m sbatch --parsable --chdir="$LAB/jobs" "$@"; }

up() {
	mkdir -p "$LAB/jobs"
	m init --dir "$LAB" --cluster lab --nodes 2 --cpus 8 --gpus 8 --gpu-type h100 --port "$PORT" \
		--conf 'AccountingStorageEnforce=limits,qos' --conf KillWait=5 --conf MinJobAge=600
	# The tour's jobs end long before their time limits, which predictions would learn within seconds. The
	# tour shows backfill by time limits, where a reservation is never late.
	sed -i 's/bf_promise=prediction/bf_promise=limit/' "$LAB/slurm.conf"
	m up --dir "$LAB"
	# Limits bind associations: whoever runs the lab gets one.
	m sacctmgr -i add account lab >/dev/null
	m sacctmgr -i add user "$(id -un)" account=lab defaultaccount=lab >/dev/null
	m sinfo
}

qoscap() {
	m sacctmgr -i add qos capped MaxTRESPerUser=gres/gpu=4 >/dev/null
	m sacctmgr -i modify user "$(id -un)" set qos+=capped >/dev/null
}

one() {
	say '(1) A one-GPU job runs and sees its GPU'
	local id
	id=$(submit -J one --gres=gpu:1 --wrap 'echo "host $SLURMD_NODENAME, GPU $CUDA_VISIBLE_DEVICES"; sleep 2')
	expect "job $id runs" running 1 -j "$id"
	m squeue
	expect "job $id is COMPLETED in the accounting" state "$id" COMPLETED
	expect "its output names its GPU" grep -q 'GPU [0-7]' "$LAB/jobs/slurm-$id.out"
	sed 's/^/  output: /' "$LAB/jobs/slurm-$id.out"
}

toobig() {
	say '(2) A job that no node can hold is refused at submission'
	local text
	if text=$(m sbatch --gres=gpu:16 -N1 --wrap hostname 2>&1); then
		echo "  FAIL  it was accepted: $text"; FAILED=$((FAILED + 1)); return
	fi
	echo "  $text"
	expect 'the text is the one users know' grep -q 'Requested node configuration is not available' <<<"$text"
}

cap() {
	say '(3) A user over the QOS cap of 4 GPUs waits, and is told why'
	local ids=() id
	for _ in 1 2 3 4 5; do ids+=("$(submit -J capped --qos=capped --gres=gpu:1 --wrap 'sleep 600')"); done
	id=${ids[4]}
	expect 'four of five run' running 4 -n capped
	expect "job $id waits with QOSMaxGRESPerUser" reason "$id" QOSMaxGRESPerUser
	m squeue -n capped
	m why "$id"
	m scancel -n capped
	expect 'all are gone' running 0 -n capped
}

array() {
	say '(4) An array of 20 one-GPU jobs fills the 16 GPUs; 4 tasks wait for Resources'
	ARRAY=$(submit -J sweep --array=1-20 --gres=gpu:1 --wrap 'sleep 600')
	expect '16 run' running 16 -j "$ARRAY"
	expect '4 wait' pending 4 -j "$ARRAY"
	expect 'with the reason Resources' reason "$ARRAY" Resources
	m squeue
	m why "$ARRAY"
	m scancel "$ARRAY"
	expect 'the array is gone' running 0 -j "$ARRAY"
}

drain() {
	say '(5) Drain a node: jobs route around it; resume; backfill'
	local a big small
	m scontrol update nodename=node1 state=drain reason='fan replacement'
	m sinfo -R
	a=$(submit -J around --array=1-4 --gres=gpu:1 --wrap 'sleep 600')
	expect 'four tasks run on node2' is_on "$a" node2 4
	m scontrol update nodename=node1 state=resume
	m scancel "$a"
	expect 'they are gone' running 0 -j "$a"
	submit -J holder -w node1 --gres=gpu:5 -t 10 --wrap 'sleep 600' >/dev/null
	submit -J holder -w node2 --gres=gpu:5 -t 10 --wrap 'sleep 600' >/dev/null
	expect 'two jobs hold five GPUs on each node' running 2 -n holder
	big=$(submit -J big -N2 --ntasks-per-node=1 --gres=gpu:8 -t 30 --wrap 'sleep 1')
	expect "job $big (all 16 GPUs) waits for Resources" reason "$big" Resources
	small=$(submit -J small --gres=gpu:2 -t 5 --wrap 'sleep 600')
	expect "job $small fits into the gap and starts before it" running 1 -j "$small"
	local long
	long=$(submit -J long --gres=gpu:1 -t 60 --wrap 'sleep 600')
	expect "job $long would delay it and waits" reason "$long" Priority
	m squeue --start
	m why "$big"
	m scancel --me
	expect 'the queue is empty' running 0
}

is_on() { is "$(m squeue -h -r -t R -j "$1" -o %N | sort | uniq -c | tr -s ' ' | sed 's/^ //')" "$3 $2"; }

show() {
	say 'What the cluster shows'
	m sinfo; echo
	m sacct -X -o JobID,JobName,Partition,AllocTRES%40,State,ExitCode,Elapsed; echo
	m sreport cluster utilization start=today end=now+1hour; echo
	m sreport user top start=today end=now+1hour; echo
	m kpi; echo
	echo "metrics: http://127.0.0.1:$(metrics_port)/metrics (controller), http://127.0.0.1:$(agent_port 0)/metrics (node1)"
}

metrics_port() { if [ "$PORT" = 6817 ]; then echo 8080; else echo $((PORT + 4)); fi; }
agent_port() { if [ "$PORT" = 6817 ]; then echo $((9400 + $1)); else echo $((PORT + 10 + $1)); fi; }

scrape() {
	say 'GPU metrics carry the job'
	local id
	id=$(submit -J labelled --gres=gpu:2 --wrap 'sleep 600')
	expect "job $id runs" running 1 -j "$id"
	expect 'two DCGM series carry its id' labelled "$id" 2
	fetch "$(agent_port 0)" "$(agent_port 1)" | grep "^DCGM_FI_DEV_GPU_UTIL.*slurm_job_id=\"$id\"" || true
	m scancel "$id"
}

fetch() { local p; for p in "$@"; do curl -s "http://127.0.0.1:$p/metrics"; done; }
labelled() { is "$(fetch "$(agent_port 0)" "$(agent_port 1)" | grep -c "^DCGM_FI_DEV_GPU_UTIL.*slurm_job_id=\"$1\"")" "$2"; }

demo() {
	qoscap
	one
	toobig
	cap
	array
	scrape
}

evidence() {
	local to=${1:-$LAB/evidence}
	mkdir -p "$to"
	m sinfo >"$to/sinfo.txt"
	m sinfo -N -l >"$to/sinfo-nodes.txt"
	m squeue >"$to/squeue.txt"
	m sacct -X -P -o ALL >"$to/sacct.txt"
	m sacctmgr -P show qos >"$to/qos.txt"
	m kpi --json >"$to/kpi.json"
	m scontrol show node >"$to/nodes.txt"
	fetch "$(metrics_port)" >"$to/metrics-controller.txt"
	fetch "$(agent_port 0)" >"$to/metrics-node1.txt"
	cat >"$to/README.txt" <<-TXT
		Evidence of a lab run, $(date -u +%FT%TZ), release $(m --version).
		Real: the controller, its ledger on disk, the scheduler, the agents, the job
		processes, their exit codes and usage, the ClickHouse engine and its rows.
		Simulated: the GPUs. Their UUIDs, load, power and temperature come from a
		deterministic model driven by the jobs; both nodes are agents on one machine.
	TXT
	echo "evidence is in $to"
}

down() { m down --dir "$LAB" --jobs; }

finish() {
	if [ "$FAILED" -gt 0 ]; then
		echo; echo "$FAILED expectations failed; logs are in $LAB/run"; return 1
	fi
}

[ -x "$BIN/muster" ] || die "$BIN/muster is missing: run make build"

case "${1:-}" in
up) up ;;
demo) demo; show; finish ;;
drain) drain; finish ;;
evidence) evidence "${2:-}" ;;
down) down ;;
all) up; demo; drain; show; finish ;;
*) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
