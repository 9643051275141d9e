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
	var supports []Support
	supports = append(supports, rows("slurm.conf", "", topKeys())...)
	supports = append(supports, rows("slurm.conf", "NodeName", nodeKeys())...)
	supports = append(supports, rows("slurm.conf", "PartitionName", partKeys())...)
	supports = append(supports, rows("slurm.conf", "NodeSet", setKeys())...)
	supports = append(supports, rows("slurm.conf", "DownNodes", downKeys())...)
	supports = append(supports, rows("gres.conf", "", gresKeys())...)
	supports = append(supports, rows("topology.conf", "", topologyKeys())...)
	supports = append(supports, rows("cgroup.conf", "", cgroupKeys())...)
	supports = append(supports, rows("job_container.conf", "", containerKeys())...)
	supports = append(supports, rows("mpi.conf", "", mpiKeys())...)
	supports = append(supports, rows("acct_gather.conf", "", gatherKeys())...)
	supports = append(supports, rows("oci.conf", "", ociKeys())...)
	return append(supports, rows("slurmdbd.conf", "", dbdKeys())...)
}

func rows[T any](file, record string, keys []key[T]) []Support {
	supports := make([]Support, len(keys))
	for i, k := range keys {
		supports[i] = Support{
			File:   file,
			Record: record,
			Key:    k.name,
			Status: k.class.String(),
			Why:    k.why,
		}
	}
	return supports
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
