package slurmconf

// Support is what Muster does with one key: a row of the documentation.
type Support struct {
	File   string // slurm.conf, gres.conf, topology.conf, cgroup.conf, job_container.conf, mpi.conf, oci.conf, acct_gather.conf, slurmdbd.conf
	Record string // the record that the key belongs to, such as NodeName; empty for lines of their own
	Key    string
	Status string // implemented, meaningless, unsupported, refused
	Why    string // empty for implemented
}

// Supported lists every key that the readers know, file by file.
func Supported() []Support {
	var out []Support
	out = append(out, rows("slurm.conf", "", topKeys())...)
	out = append(out, rows("slurm.conf", "NodeName", nodeKeys())...)
	out = append(out, rows("slurm.conf", "PartitionName", partKeys())...)
	out = append(out, rows("slurm.conf", "NodeSet", setKeys())...)
	out = append(out, rows("slurm.conf", "DownNodes", downKeys())...)
	out = append(out, rows("gres.conf", "", gresKeys())...)
	out = append(out, rows("topology.conf", "", topologyKeys())...)
	out = append(out, rows("cgroup.conf", "", cgroupKeys())...)
	out = append(out, rows("job_container.conf", "", containerKeys())...)
	out = append(out, rows("mpi.conf", "", mpiKeys())...)
	out = append(out, rows("acct_gather.conf", "", gatherKeys())...)
	out = append(out, rows("oci.conf", "", ociKeys())...)
	return append(out, rows("slurmdbd.conf", "", dbdKeys())...)
}

func rows[T any](file, record string, keys []key[T]) []Support {
	out := make([]Support, len(keys))
	for i, k := range keys {
		out[i] = Support{
			File:   file,
			Record: record,
			Key:    k.name,
			Status: k.class.String(),
			Why:    k.why,
		}
	}
	return out
}

func (c class) String() string {
	switch c {
	case implemented:
		return "implemented"
	case meaningless:
		return "meaningless"
	case unsupported:
		return "unsupported"
	case refused:
		return "refused"
	}
	return "unknown"
}
