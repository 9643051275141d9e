# Words for the checks of this folder. Each check is a script of bash that runs in a folder of
# its own, with $COMMAND set to sbatch, srun or salloc and the options under test as "$@".

# inside CMD OPTIONS... runs a command line in a job with these options, and prints what it says.
inside() {
	local line=$1
	shift
	case $COMMAND in
	sbatch)
		sbatch -Q -W -o "$PWD/inside.out" "$@" --wrap "$line"
		cat "$PWD/inside.out" 2>/dev/null
		;;
	srun) srun -Q "$@" bash -c "$line" ;;
	salloc) salloc -Q "$@" bash -c "$line" ;;
	esac 2>&1
}

# shown OPTIONS... prints what scontrol shows of a job that runs with these options.
shown() { inside '[ "${SLURM_PROCID:-0}" != 0 ] || scontrol -d show job $SLURM_JOB_ID' "$@"; }

# submit OPTIONS... submits a job that is expected to wait, and leaves its number in $j.
# If it did not wait, it prints what the command said, and fails.
submit() {
	j=
	case $COMMAND in
	sbatch)
		j=$(sbatch --parsable -o /dev/null "$@" --wrap true 2>submit.err) || { cat submit.err; return 1; }
		;;
	*)
		$COMMAND "$@" true >submit.out 2>submit.err &
		until [ -e submit.err ]; do sleep 0.01; done
		while j=$(sed -n 's/.*job \([0-9]*\) queued and waiting.*/\1/p' submit.err); [ -z "$j" ]; do
			kill -0 $! 2>/dev/null || { wait $!; local code=$?; cat submit.err; [ $code = 0 ] || return 1; return 2; }
			sleep 0.05
		done
		;;
	esac
}

# held OPTIONS... submits a held job with these options, and prints what scontrol shows of it.
held() { submit -H "$@" && scontrol show job "$j"; }

# reason OPTIONS... submits a job with these options, and prints why it waits.
reason() {
	submit "$@" || return
	while [ "$(squeue -h -t PD -j "$j" -o %r)" = None ]; do sleep 0.1; done
	squeue -h -t PD -j "$j" -o %r
}

# field NAME prints the value of NAME= in what scontrol shows.
field() { tr ' ' '\n' | sed -n "s|^$1=||p" | head -1; }

# tres NAME prints the amount of a resource that scontrol shows as allocated.
tres() { field AllocTRES | tr , '\n' | sed -n "s|^$1=||p"; }

# accepted OPTIONS... prints what a refusal says, or the word accepted.
accepted() { submit -H "$@" && echo accepted; }

trap '[ -z "${j:-}" ] || scancel -Q "$j"; wait' EXIT

# changed OPTIONS -- KEY=VALUE... submits a held job with options, changes it, and prints what
# scontrol shows of it. Without a key it changes nothing.
changed() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	COMMAND=sbatch submit -H -t 30 "${options[@]}" || return
	[ $# = 0 ] || scontrol update jobid=$j "$@" || return
	scontrol show job $j
}

# node KEY=VALUE... changes node2, prints what scontrol shows of it, and takes it back with $BACK.
node() {
	[ $# = 0 ] || scontrol update nodename=node2 "$@" || return
	scontrol show node node2
	[ $# = 0 ] || scontrol update nodename=node2 "$BACK" >/dev/null
}

# column NAME prints a column of a command: of $JOB, which is the job that has something in most
# of them unless a check says otherwise.
column() {
	local job=${JOB:-$RICH}
	case $KIND-$COMMAND in
	field-squeue) squeue -h -j "$job" -O "$1:200" ;;
	letter-squeue) squeue -h -j "$job" -o "$1" ;;
	field-sacct) sacct -nXP -j "$job" -o "$1" ;;
	field-sinfo) sinfo -h -p "${PART:-night}" -n node2 -O "$1:200" ;;
	letter-sinfo) sinfo -h -p "${PART:-night}" -n node2 -o "$1" ;;
	esac | sed 's/ *$//'
}
