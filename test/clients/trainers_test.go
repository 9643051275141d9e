package clients

// gathered is what the four ranks of the small training program write.
const gathered = `^rank 0 of 4 gathered 4 blocks\nrank 1 of 4 gathered 4 blocks\nrank 2 of 4 gathered 4 blocks\nrank 3 of 4 gathered 4 blocks\n$`

// headOf are the lines with which a script finds the first node of its job.
const headOf = `nodes=( $( scontrol show hostnames "$SLURM_JOB_NODELIST" ) )
head=${nodes[0]}
export MASTER_ADDR=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | cut -d ' ' -f 1)
`

// workersOf is a launcher's part on a node: it starts a worker for each GPU of the node.
const workersOf = `for local in $(seq 0 $((per_node - 1))); do
	RANK=$((node_rank * per_node + local)) LOCAL_RANK=$local WORLD_SIZE=$((nnodes * per_node)) {self} ring &
	workers="$workers $!"
done
for worker in $workers; do wait $worker || exit 1; done
`

// trainers start the ranks of distributed training. The launchers themselves are
// stand-ins that give their workers the variables that those give; the workers are a
// real program, which gathers blocks over TCP (ring).
func trainers() []client {
	return []client{
		{
			name: "torchrun", version: "2.8", what: "PyTorch's launcher, one agent on each node",
			files: map[string]string{
				"torchrun": "#!/bin/bash\nwhile [ $# -gt 0 ]; do case $1 in --nnodes) nnodes=$2;; --nproc_per_node) per_node=$2;; --node_rank) node_rank=$2;; --rdzv_endpoint) export MASTER_PORT=${2##*:};; esac; shift 2; done\n" + workersOf,
				"train.sh": "#!/bin/bash\n#SBATCH --job-name=torchrun\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-task=2\n#SBATCH --output={dir}/out\n" + headOf +
					`srun {dir}/with-rank {dir}/torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$((20000 + SLURM_JOB_ID % 10000))` + "\n",
				"with-rank": "#!/bin/bash\nexec \"$@\" --node_rank $SLURM_NODEID\n",
			},
			steps: trainingSteps,
		},
		{
			name: "Accelerate", version: "1.10", what: "Hugging Face's launcher, one on each node",
			files: map[string]string{
				"accelerate": "#!/bin/bash\nwhile [ $# -gt 0 ]; do case $1 in --num_processes) all=$2;; --num_machines) nnodes=$2;; --machine_rank) node_rank=$2;; --main_process_port) export MASTER_PORT=$2;; esac; shift 2; done\nper_node=$((all / nnodes))\n" + workersOf,
				"train.sh": "#!/bin/bash\n#SBATCH --job-name=accelerate\n#SBATCH -D {dir}\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:2\n#SBATCH --output={dir}/out\n" + headOf +
					"export GPUS_PER_NODE=$SLURM_GPUS_ON_NODE\nexport LAUNCHER=\"{dir}/accelerate --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) --num_machines $SLURM_NNODES --main_process_ip $MASTER_ADDR --main_process_port $((20000 + SLURM_JOB_ID % 10000))\"\n" +
					"srun bash -c \"$LAUNCHER --machine_rank \\$SLURM_PROCID\"\n",
			},
			steps: trainingSteps,
		},
		{
			name: "DeepSpeed", version: "0.17", what: "its Slurm runner, one task for each GPU",
			files: map[string]string{
				"deepspeed": "#!/bin/bash\nsinfo >/dev/null || exit 1\n" + headOf +
					"exec srun -n 4 --comment zero --nodes 2 --gpus 4 --export=ALL,MASTER_ADDR=$MASTER_ADDR,MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec {self} ring'\n",
			},
			steps: []step{
				{does: "runs in an allocation", line: "salloc -J deepspeed -N 2 --ntasks-per-node=2 --gpus-per-node=2 {dir}/deepspeed | sort", reads: gathered},
			},
		},
		{
			name: "JAX", version: "0.7", what: "processes that find their coordinator themselves",
			files: map[string]string{
				"initialize": `#!/bin/bash
coordinator=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)
export MASTER_ADDR=$(scontrol show node "$coordinator" | grep -o 'NodeAddr=[^ ]*' | cut -d = -f 2)
export MASTER_PORT=$((SLURM_JOB_ID % 4096 + 61440))
[ "$SLURM_LOCALID" -lt 2 ] || exit 1
RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec {self} ring
`,
				"train.sh": "#!/bin/bash\n#SBATCH --job-name=jax\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-task=1\n#SBATCH --output={dir}/out\nsrun {dir}/initialize\n",
			},
			steps: trainingSteps,
		},
		{
			name: "Ray", version: "2.49", what: "a cluster inside of a job: a head and workers that block",
			files: map[string]string{
				"ray": `#!/bin/bash
case $1 in
start) touch {dir}/up-$2-$SLURMD_NODENAME; exec sleep infinity;;
symmetric-run) RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec {self} ring;;
esac
`,
				"cluster.sh": "#!/bin/bash\n#SBATCH --job-name=ray\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=2\n#SBATCH --output={dir}/blocks\n" + headOf + `
srun --nodes=1 --ntasks=1 -w "$head" {dir}/ray start head --block &
until [ -e {dir}/up-head-$head ]; do sleep 0.1; done
for node in "${nodes[@]:1}"; do srun --nodes=1 --ntasks=1 -w "$node" {dir}/ray start worker --block & done
until [ -e {dir}/up-worker-${nodes[1]} ]; do sleep 0.1; done
echo the driver runs >{dir}/driver
`,
				"train.sh": "#!/bin/bash\n#SBATCH --job-name=ray\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --output={dir}/out\n" + headOf +
					"export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\nsrun --nodes=2 --ntasks=4 {dir}/ray symmetric-run\n",
			},
			steps: append([]step{
				{does: "submits a cluster", line: "sbatch {dir}/cluster.sh", reads: `Submitted batch job (?P<cluster>\d+)`},
				{does: "runs its driver beside head and worker, which end with the script", line: "sacct -X -n -P -j {cluster} -o State && cat {dir}/driver", reads: `^COMPLETED\nthe driver runs\n$`, waits: true},
				{does: "left no step behind", line: "squeue -h -s -j {cluster}", reads: `^$`},
			}, trainingSteps...),
		},
		{
			name: "Horovod", version: "0.28", what: "ranks over gloo, started by srun",
			files: map[string]string{
				"train.sh": "#!/bin/bash\n#SBATCH --job-name=horovod\n#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-task=1\n#SBATCH --output={dir}/out\n" + headOf + `
export HOROVOD_CONTROLLER=gloo HOROVOD_GLOO_RENDEZVOUS_ADDR=$MASTER_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT=$((20000 + SLURM_JOB_ID % 10000))
srun --mpi=none bash -c 'export HOROVOD_RANK=$SLURM_PROCID HOROVOD_SIZE=$SLURM_NTASKS HOROVOD_LOCAL_RANK=$SLURM_LOCALID; [ $SLURM_NODEID = $((HOROVOD_RANK / 2)) ] || exit 1
MASTER_ADDR=$HOROVOD_GLOO_RENDEZVOUS_ADDR MASTER_PORT=$HOROVOD_GLOO_RENDEZVOUS_PORT RANK=$HOROVOD_RANK WORLD_SIZE=$HOROVOD_SIZE exec {self} ring'
`,
			},
			steps: trainingSteps,
		},
	}
}

// trainingSteps submit a training job and read what its ranks have written.
var trainingSteps = []step{
	{does: "submits", line: "sbatch {dir}/train.sh", reads: `Submitted batch job (?P<id>\d+)`},
	{does: "polls until it has ended", line: "sacct -X -n -P -j {id} -o State", reads: `^COMPLETED\n$`, waits: true},
	{does: "gathered the blocks of all ranks at each", line: "sort {dir}/out", reads: gathered},
}
