#!/usr/bin/env bash
# Three controllers on loopback addresses of this machine and two nodes: the
# leader is killed twice while jobs are submitted and run, and squeue is asked
# all the time. Prints what was lost (nothing) and for how long nobody answered.
# Then curl takes a job through Slurm's REST API with a token: submitted at one
# member, asked for at another.
set -euo pipefail

bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/bin
lab=$(mktemp -d "${TMPDIR:-/tmp}/muster-ha.XXXXXX")
chmod 755 "$lab" # for jobs of another user
port=${LAB_PORT:-$((20000 + RANDOM % 20000))}
declare -A pid

home() { if [ "$1" = ctl1 ]; then echo "$lab"; else echo "$lab/controllers/$1"; fi; }
at() { local name=$1; shift; MUSTER_SOCKET=$(home "$name")/run/muster.sock "$bin/muster" "$@"; }
begin() { "$bin/musterd" --role controller --config "$(home "$1")/muster.yaml" >>"$lab/$1.log" 2>&1 & pid[$1]=$!; }
role() { at "$1" controllers 2>/dev/null | awk -v r="$2" '$2 == r { print $1 }'; }

finish() {
	rc=$?
	at ctl2 scancel --user="$(id -un)" >/dev/null 2>&1 || true
	for name in "${!pid[@]}"; do kill "${pid[$name]}" 2>/dev/null || true; done
	wait 2>/dev/null || true
	# Shepherds outlive their agents; these are of the folder that was made above.
	for p in $(pgrep -f "muster-shepherd --dir $lab/" || true); do kill -9 "$p" 2>/dev/null || true; done
	if [ $rc = 0 ]; then rm -rf "$lab"; else echo "demo-ha failed; its folder is $lab" >&2; fi
	exit $rc
}
trap finish EXIT

whole() { # waits until one leads and two stand by
	for _ in $(seq 600); do
		if [ "$(role ctl1 leader | wc -l)" = 1 ] && [ "$(role ctl1 standby | wc -l)" = 2 ]; then return 0; fi
		sleep 0.1
	done
	echo "the group does not come together" >&2
	return 1
}

"$bin/muster" init --dir "$lab" --nodes 2 --port "$port" --controllers ctl1=127.0.0.1,ctl2=127.0.0.2,ctl3=127.0.0.3 >/dev/null
for name in ctl1 ctl2 ctl3; do begin $name; done
whole
echo "== three controllers"
at ctl1 controllers
for n in 1 2; do
	(umask 077; at ctl2 token "node$n" >"$lab/node$n.token" 2>/dev/null)
	"$bin/muster-agent" --config "$lab/muster.yaml" --node "node$n" --state-dir "$lab/node$n" --metrics off \
		--token-file "$lab/node$n.token" >>"$lab/node$n.log" 2>&1 &
	pid[node$n]=$!
done
for _ in $(seq 300); do [ "$(at ctl1 sinfo -h -t idle -o %D)" = 2 ] && break; sleep 0.1; done
mkdir "$lab/jobs"
long=$(cd "$lab/jobs" && at ctl1 sbatch --parsable -o /dev/null --wrap 'echo $$ >>long; exec sleep 600')
sleep 1

for round in 1 2; do
	whole
	leads=$(role ctl1 leader)
	asks=ctl1
	if [ "$leads" = ctl1 ]; then asks=ctl2; fi
	: >"$lab/times"
	: >"$lab/ids"
	( # submits and asks through a standby, without a pause
		end=$((SECONDS + 6))
		while [ $SECONDS -lt $end ]; do
			(cd "$lab/jobs" && at "$asks" sbatch --parsable -o /dev/null --wrap 'echo $$ >>ran.$SLURM_JOB_ID') >>"$lab/ids" || echo "failed" >>"$lab/ids"
			at "$asks" squeue -h >/dev/null || echo "squeue failed" >>"$lab/ids"
			date +%s%N >>"$lab/times"
		done
	) &
	load=$!
	sleep 2
	echo "== kill -9 of the leader, $leads ($round of 2), while jobs are submitted through $asks"
	kill -9 "${pid[$leads]}"
	wait "${pid[$leads]}" 2>/dev/null || true
	wait $load
	longest=$(awk 'NR > 1 && $1 - last > most { most = $1 - last } { last = $1 } END { printf "%d", most / 1000000 }' "$lab/times")
	failed=$(grep -c failed "$lab/ids" || true)
	lost=0
	twice=0
	for _ in $(seq 600); do [ -z "$(at "$asks" squeue -h -t PD,CF)" ] && break; sleep 0.1; done
	sleep 2
	while read -r id; do
		lines=$(wc -l 2>/dev/null <"$lab/jobs/ran.$id" || echo 0)
		if [ "$lines" = 0 ]; then lost=$((lost + 1)); fi
		if [ "$lines" -gt 1 ]; then twice=$((twice + 1)); fi
	done < <(grep -v failed "$lab/ids")
	echo "   $(grep -cv failed "$lab/ids") submissions acknowledged, $failed commands failed, $lost jobs lost, $twice ran twice; longest wait for an answer $longest ms"
	if [ "$failed$lost$twice" != 000 ]; then exit 1; fi
	begin "$leads"
done
whole
at ctl1 controllers
if [ "$(wc -l <"$lab/jobs/long")" != 1 ] || [ "$(at ctl1 squeue -h -j "$long" -o %t)" != R ]; then
	echo "the long job was disturbed" >&2
	exit 1
fi
echo "The long job noticed nothing. Nothing was lost."

# rest MEMBER METHOD PATH [CURL OPTIONS]: a call of Slurm's REST API, as any client makes it. A token of root runs no jobs,
# but lets its holder act for a user.
rest() {
	local address=127.0.0.${1#ctl}:$((port + 3)) method=$2 path=$3
	shift 3
	curl --silent --show-error --fail-with-body --max-time 30 --cacert "$lab/state/tls/ca.crt" --request "$method" \
		--header "X-SLURM-USER-TOKEN: $SLURM_JWT" --header "X-SLURM-USER-NAME: $user" --header 'Content-Type: application/json' \
		"$@" "https://$address$path"
}
user=$(id -un)
if [ "$(id -u)" = 0 ]; then user=nobody; fi
echo "== a job of $user through Slurm's REST API, with a token: submitted at ctl2, asked for at ctl3"
eval "$(at ctl1 scontrol token lifespan=600)"
reply=$(rest ctl2 POST /slurm/v0.0.44/job/submit --data @- <<'JSON'
{"script": "#!/bin/sh\nexec sleep 1", "job": {"name": "rest", "environment": ["PATH=/bin:/usr/bin"],
 "current_working_directory": "/", "standard_output": "/dev/null"}}
JSON
) || { echo "not submitted: $reply" >&2; exit 1; }
job=$(sed -n 's/.*"job_id": *\([0-9]*\).*/\1/p' <<<"$reply" | head -n 1)
for _ in $(seq 300); do
	state=$(rest ctl3 GET "/slurm/v0.0.44/job/$job" | tr -d '\n ' | sed -n 's/.*"job_state":\["\([A-Z]*\)".*/\1/p')
	[ "$state" = COMPLETED ] && break
	sleep 0.1
done
echo "   job $job: $state"
[ "$state" = COMPLETED ]
