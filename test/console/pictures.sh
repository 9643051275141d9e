#!/usr/bin/env bash
# Pictures of the console for docs/images: a lab of 6 nodes with 8 simulated GPUs each, filled by four
# users, a few minutes old.
#   pictures.sh FOLDER    all pages into FOLDER: light, dark, and as wide as a phone
# PICTURES_AGE is how long the lab runs before its pictures are taken, in seconds (300).
# It needs root: the users exist only in a mount namespace, where it runs itself again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
if [ -z "${PICTURES_INSIDE:-}" ]; then
	PICTURES_INSIDE=1 exec unshare --mount "$0" "$folder"
fi

LAB=$(mktemp -d "${TMPDIR:-/tmp}/pictures.XXXXXX")
chmod 755 "$LAB"
install -d -m 1777 "$LAB/out"
PORT=${LAB_PORT:-$((20000 + RANDOM % 20000))}
export MUSTER_SOCKET=$LAB/run/muster.sock
m() { "$root/bin/muster" "$@"; }

cp /etc/passwd "$LAB/passwd"
cp /etc/group "$LAB/group"
uid=64100
for user in alice bob carol dmitri; do
	echo "$user:x:$uid:$uid::/tmp:/bin/sh" >>"$LAB/passwd"
	echo "$user:x:$uid:" >>"$LAB/group"
	uid=$((uid + 1))
done
mount --bind "$LAB/passwd" /etc/passwd
mount --bind "$LAB/group" /etc/group

end() {
	m down --dir "$LAB" --jobs >/dev/null || true
	umount /etc/passwd /etc/group
	rm -rf "$LAB"
}
trap end EXIT

m init --dir "$LAB" --cluster aurora --nodes 6 --cpus 64 --mem 512000 --gpus 8 --gpu-type h100 --port "$PORT" \
	--conf 'AccountingStorageEnforce=limits,qos' --conf MinJobAge=3600 --conf 'PriorityType=priority/multifactor' \
	--conf 'PriorityWeightFairshare=1000' --conf 'PriorityWeightAge=1000'
sed -i -e 's/^cost:$/&\n  currency: EUR\n  prices: ["2026-01-01 cpu=0.012 mem=0.002 gres\/gpu=1.50"]\n  budgets: ["ml 2026-01-01 2036-01-01 120000 warn=80,95"]/' \
	-e 's/^  idle_after: .*/  idle_after: 1m/' "$LAB/muster.yaml"
m up --dir "$LAB"

m sacctmgr -i add account ml description=models >/dev/null
m sacctmgr -i add account climate >/dev/null
m sacctmgr -i add user alice,bob account=ml >/dev/null
m sacctmgr -i add user carol,dmitri account=climate >/dev/null
m sacctmgr -i modify account ml set GrpTRES=gres/gpu=40 >/dev/null
m sacctmgr -i modify account climate set GrpTRES=gres/gpu=24 >/dev/null
m sacctmgr -i modify user carol set MaxJobs=3 >/dev/null

# submit USER NAME LOAD OPTIONS...: a job that sleeps for $SLEEP seconds; LOAD is what its GPUs do.
submit() {
	local user=$1 name=$2 load=$3; shift 3
	m sbatch --parsable --uid="$user" --gid="$user" -J "$name" --chdir=/tmp --comment="sim:$load" "$@" \
		--wrap "${WORK:-sleep ${SLEEP:-3600}}"
}

SLEEP=20 submit bob vit-sweep util=80 -o /dev/null --array=1-24%8 --gres=gpu:1 -c4 --mem=16G -t 1:00:00 >/dev/null
SLEEP=40 submit dmitri era5-regrid '' -o /dev/null --array=1-6 -c8 --mem=32G -t 1:00:00 >/dev/null
WORK='echo no space left on /scratch >&2; exit 28' submit alice tokenize '' -o /dev/null -c16 --mem=64G -t 30 >/dev/null
submit alice pretrain-2n util=96,mem=88 -o /dev/null -N2 --ntasks-per-node=1 --gres=gpu:8 -c32 --mem=256G -t 1-0 >/dev/null
WORK='for step in $(seq 100 100 100000); do echo "$(date +%T) step $step loss 2.$((31000 / (step + 40) + 10)) lr 3e-4"; sleep 2; done'
export WORK
running=$(submit alice sft-7b util=92,mem=80,shape=saw,period=90s -o "$LAB/out/sft-%j.log" --gres=gpu:4 -c16 --mem=128G -t 8:00:00)
unset WORK
submit carol notebook shape=absent -o /dev/null --gres=gpu:2 -c8 --mem=64G -t 12:00:00 >/dev/null
submit carol sd-finetune util=74,mem=60,shape=burst -o /dev/null --gres=gpu:2 -c8 --mem=64G -t 3:00:00 >/dev/null
submit dmitri protein-fold util=88 -o /dev/null --array=1-30%6 --gres=gpu:1 -c4 --mem=24G -t 40 >/dev/null
submit dmitri docking util=60 -o /dev/null --gres=gpu:4 -c16 --mem=96G -t 2:00:00 >/dev/null
m scontrol update nodename=node5 state=drain reason='GPU 3 throws XID 48, RMA 4711' >/dev/null
waiting=$(submit bob pretrain-4n util=95 -o /dev/null -N4 --ntasks-per-node=1 --gres=gpu:8 -c32 --mem=256G -t 1-0)
submit bob dpo-70b util=90 -o /dev/null --gres=gpu:8 -c32 --mem=256G -t 5:00:00 >/dev/null
for size in 8 4 2; do
	submit carol "sd-finetune-$size" util=74 -o /dev/null --gres=gpu:$size -c8 --mem=64G -t 3:00:00 >/dev/null
	submit alice "eval-$size" util=70 -o /dev/null --gres=gpu:$size -c8 --mem=64G -t 5:00:00 >/dev/null
done
submit bob ablation util=85 -o /dev/null --array=1-20 --gres=gpu:1 -c4 --mem=16G -t 90 >/dev/null
submit dmitri nightly '' -o /dev/null --begin=now+5hours -c4 -t 30 >/dev/null
submit alice held-run '' -o /dev/null -H --gres=gpu:8 -t 60 >/dev/null
m scontrol create reservation reservationname=maintenance starttime=now+2days duration=4:00:00 nodes=node1,node2 user=root flags=maint >/dev/null

sleep "${PICTURES_AGE:-300}"
at=$(date -u -d "-$((${PICTURES_AGE:-300} / 2)) seconds" +%Y-%m-%dT%H:%M:%SZ)
cd "$here"
MUSTER_TEST_CONSOLE=1 MUSTER_CONSOLE_LAB=$LAB MUSTER_SCREENSHOTS=$folder MUSTER_SCREENSHOT_JOBS=$waiting,$running \
	MUSTER_SCREENSHOT_OWNER=alice MUSTER_SCREENSHOT_AT=$at go test -count=1 -v -run '^TestScreenshots$' .
