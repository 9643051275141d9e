package slurmconf

import (
	"io/fs"
	"path"
	"strings"
)

// MPI is an mpi.conf: how nodes serve PMIx.
type MPI struct {
	Name     string
	Settings []Setting
	// Folder is where steps have the folders of their PMIx servers; empty: /tmp.
	Folder string
	// Env are variables of the PMIx servers, NAME=value.
	Env []string
}

// mpiKeys are the keys of mpi.conf.
//
//muster:table one row for each key
func mpiKeys() []key[MPI] {
	const (
		whyWay  = "what the nodes exchange goes over the connections of the step's srun"
		whyUCX  = "UCX is not used between the servers: " + whyWay
		whyCall = "every fence is a collective through the step's srun"
	)
	return []key[MPI]{
		{"PMIxCliTmpDirBase", implemented, "", "", func(mpi *MPI, v value) {
			if !path.IsAbs(v.Value) {
				v.failValue("%s is no absolute path", quoteShort(v.Value))
				return
			}
			mpi.Folder = path.Clean(v.Value)
		}},
		{"PMIxCollFence", meaningless, "", whyCall, nil},
		{"PMIxDebug", meaningless, "", "what the servers complain of is in the shepherd's log; PMIxEnv takes PMIX_MCA variables for more", nil},
		{"PMIxDirectConn", meaningless, "", whyWay, nil},
		{"PMIxDirectConnEarly", meaningless, "", whyWay, nil},
		{"PMIxDirectConnUCX", meaningless, "", whyUCX, nil},
		{"PMIxDirectSameArch", meaningless, "", whyWay, nil},
		{"PMIxEnv", implemented, "", "", setPMIxEnv},
		{"PMIxFenceBarrier", meaningless, "", whyCall, nil},
		{"PMIxNetDevicesUCX", meaningless, "", whyUCX, nil},
		{"PMIxShareServerTopo", unsupported, "no|false|0", "each step reads the topology of its node", nil},
		{"PMIxTimeout", unsupported, "", "a fence waits as long as the step runs, for tasks that come late", nil},
		{"PMIxTlsUCX", meaningless, "", whyUCX, nil},
	}
}

// setPMIxEnv reads NAME=value with semicolons between them.
func setPMIxEnv(mpi *MPI, v value) {
	for item := range strings.SplitSeq(v.Value, ";") {
		name, _, ok := strings.Cut(item, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			v.failValue("%s is no NAME=value", quoteShort(item))
			return
		}
		mpi.Env = append(mpi.Env, item)
	}
}

// ReadMPI reads mpi.conf. The result is never nil; it must not be used if the
// problems hold an Error.
func ReadMPI(fsys fs.FS, name string) (*MPI, Problems) {
	var problems Problems
	mpi := &MPI{Name: name}
	t := newTable("a line of mpi.conf", mpiKeys())
	recs, _ := lexFiles(fsys, name, &problems)
	for _, record := range recs {
		mpi.Settings = append(mpi.Settings, record...)
		applyAll(mpi, t, record, &problems)
	}
	return mpi, problems.sortedByLine()
}
