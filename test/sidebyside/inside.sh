#!/bin/bash
# Runs as the first process within the namespaces of cluster.sh: starts a cluster and waits.
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TZ=UTC
hostname side
grep -q side /etc/hosts || echo "127.0.0.1 side" >>/etc/hosts
mkdir -p /home
for user in alice bob carol; do
	id "$user" >/dev/null 2>&1 || useradd --no-create-home --shell /bin/bash "$user"
	install -d -o "$user" -g "$user" "/home/$user"
done

# associations makes accounts and users, by the commands that are compared.
associations() {
	sacctmgr -i add account ml Description=ml Organization=ml
	sacctmgr -i add account phys Description=phys Organization=phys
	sacctmgr -i add user alice account=ml
	sacctmgr -i add user bob account=ml
	sacctmgr -i add user carol account=phys
	sacctmgr -i add qos gpucap MaxTRESPerUser=gres/gpu=4
	sacctmgr -i modify user alice set qos+=gpucap
}

common="
SchedulerParameters=bf_interval=2,sched_min_interval=0
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=2000
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
MaxArraySize=1001
FirstJobId=70001
Licenses=matlab:10,ansys:2
KillWait=2
DefMemPerCPU=500
"

slurm() {
	local state=/var/lib/peer log=/var/log/peer
	mkdir -p "$state"/{ctld,db} /var/spool/peer "$log" /run/mysqld /run/munge /etc/slurm /srv/dev
	for i in 0 1 2 3 4 5 6 7; do
		[ -e "/srv/dev/nvidia$i" ] || mknod "/srv/dev/nvidia$i" c 195 "$i"
	done
	cat >/etc/slurm/slurm.conf <<-CONF
		ClusterName=muster
		SlurmctldHost=side(127.0.0.1)
		SlurmUser=slurm
		AuthType=auth/munge
		StateSaveLocation=$state/ctld
		SlurmdSpoolDir=/var/spool/peer/%n
		SlurmctldPidFile=/run/slurmctld.pid
		SlurmdPidFile=/run/slurmd.%n.pid
		SlurmctldLogFile=$log/slurmctld.log
		SlurmdLogFile=$log/slurmd.%n.log
		SlurmdParameters=config_overrides
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/linux
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core_Memory
		GresTypes=gpu
		SchedulerType=sched/backfill
		AccountingStorageType=accounting_storage/slurmdbd
		AccountingStorageHost=127.0.0.1
		MpiDefault=none
		$common
		NodeName=node[1-2] NodeHostname=side NodeAddr=127.0.0.1 Port=[1701-1702] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000 Gres=gpu:8 State=UNKNOWN
		PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
		PartitionName=debug Nodes=node[1-2] MaxTime=00:30:00 DefaultTime=00:05:00 State=UP PriorityJobFactor=10
	CONF
	echo 'NodeName=node[1-2] Name=gpu File=/srv/dev/nvidia[0-7]' >/etc/slurm/gres.conf
	cat >/etc/slurm/slurmdbd.conf <<-CONF
		AuthType=auth/munge
		DbdHost=localhost
		DbdAddr=127.0.0.1
		SlurmUser=slurm
		LogFile=$log/slurmdbd.log
		PidFile=/run/slurmdbd.pid
		StorageType=accounting_storage/mysql
		StorageHost=localhost
		StorageUser=slurm
		StoragePass=slurm
		StorageLoc=slurm_acct_db
	CONF
	chown slurm /etc/slurm/slurmdbd.conf "$state/ctld" "$log"
	chmod 600 /etc/slurm/slurmdbd.conf
	chown mysql "$state/db" /run/mysqld
	chown munge /run/munge
	runuser -u munge -- munged
	[ -d "$state/db/mysql" ] || mariadb-install-db --user=mysql --datadir="$state/db" --skip-test-db >/dev/null
	mariadbd --no-defaults --user=mysql --datadir="$state/db" --socket=/run/mysqld/mysqld.sock \
		--skip-networking --innodb-lock-wait-timeout=900 >"$log/mariadb.log" 2>&1 &
	until mariadb-admin --socket=/run/mysqld/mysqld.sock ping >/dev/null 2>&1; do sleep 0.1; done
	mariadb --socket=/run/mysqld/mysqld.sock -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; \
		GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED BY 'slurm';"
	slurmdbd
	until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.1; done
	sacctmgr -i add cluster muster
	slurmctld
	until scontrol ping | grep -q UP; do sleep 0.1; done
	slurmd -N node1
	slurmd -N node2
	associations
	until [ "$(sinfo -h -o %D -t idle)" = 2 ]; do sleep 0.1; done
}

muster() {
	local program=/opt/muster/muster line
	local -a conf=()
	while read -r line; do
		[ -z "$line" ] || conf+=(--conf "$line")
	done <<<"$common"
	mkdir -p /opt/names /srv
	"$program" links /opt/names >/dev/null
	"$program" init --dir /srv/lab --nodes 2 --gpus 8 "${conf[@]}"
	sed -i 's/^\(NodeName=node.*\)$/\1 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1/' /srv/lab/slurm.conf
	echo 'PartitionName=debug Nodes=ALL MaxTime=00:30:00 DefaultTime=00:05:00 State=UP PriorityJobFactor=10' >>/srv/lab/slurm.conf
	"$program" up --dir /srv/lab
	export MUSTER_SOCKET=/srv/lab/run/muster.sock PATH=/opt/names:$PATH
	associations
}

"$1"
touch /ready
exec sleep infinity
