package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// field is what a column of a dump says.
type field uint8

const (
	skip field = iota
	fJobID
	fJobIDRaw
	fCluster
	fPartition
	fQOS
	fAccount
	fUser
	fUID
	fGroup
	fGID
	fName
	fState
	fExit
	fDerived
	fSubmit
	fEligible
	fStart
	fEnd
	fElapsed
	fElapsedRaw
	fLimit
	fLimitRaw
	fSuspended
	fNNodes
	fNCPUs
	fReqCPUs
	fReqMem
	fReqTRES
	fAllocTRES
	fAllocGRES
	fGPUs
	fNodeList
	fNTasks
	fTotalCPU
	fUserCPU
	fSystemCPU
	fMaxRSS
	fInTot
	fEnergy
	fWorkDir
	fReason
	fReservation
	fConstraint
	fPriority
	fWCKey
	fComment
	fSubmitLine
	fAssoc
	fAdmin
	fSystem
	fExtra
	fMCS
	fFailedNode
	fSegment
	fMaxVM
	fKHz
	fLast
)

// columnNames are the columns as sacct calls them, in lower case. Those of sacct
// that say nothing of what is stored are skipped; gpus, a number, is ours.
func columnNames() map[string]field {
	return map[string]field{
		"jobid": fJobID, "jobidraw": fJobIDRaw, "cluster": fCluster, "partition": fPartition, "qos": fQOS, "account": fAccount, "user": fUser, "uid": fUID,
		"group": fGroup, "gid": fGID, "jobname": fName, "state": fState, "exitcode": fExit, "derivedexitcode": fDerived, "submit": fSubmit,
		"eligible": fEligible, "start": fStart, "end": fEnd, "elapsed": fElapsed, "elapsedraw": fElapsedRaw, "timelimit": fLimit, "timelimitraw": fLimitRaw,
		"suspended": fSuspended, "nnodes": fNNodes, "allocnodes": fNNodes, "ncpus": fNCPUs, "alloccpus": fNCPUs, "reqcpus": fReqCPUs, "reqmem": fReqMem,
		"reqtres": fReqTRES, "alloctres": fAllocTRES, "allocgres": fAllocGRES, "gpus": fGPUs, "nodelist": fNodeList, "ntasks": fNTasks, "totalcpu": fTotalCPU,
		"usercpu": fUserCPU, "systemcpu": fSystemCPU, "maxrss": fMaxRSS, "tresusageintot": fInTot, "consumedenergyraw": fEnergy, "workdir": fWorkDir,
		"reason": fReason, "reservation": fReservation, "constraints": fConstraint, "priority": fPriority, "wckey": fWCKey, "comment": fComment,
		"submitline": fSubmitLine, "associd": fAssoc, "admincomment": fAdmin, "systemcomment": fSystem, "extra": fExtra, "mcslabel": fMCS, "failednode": fFailedNode, "segmentsize": fSegment,
		"maxvmsize": fMaxVM, "avecpufreq": fKHz,
	}
}

// ignoredColumns are columns of sacct that are read over.
func ignoredColumns() []string {
	return []string{
		"allocnodes",
		"avecpu",
		"avediskread",
		"avediskwrite",
		"avepages",
		"averss",
		"avevmsize",
		"blockid",
		"consumedenergy",
		"container",
		"cputime",
		"cputimeraw",
		"dbindex",
		"flags",
		"jobcomment",
		"layout",
		"licenses",
		"maxdiskread",
		"maxdiskreadnode",
		"maxdiskreadtask",
		"maxdiskwrite",
		"maxdiskwritenode",
		"maxdiskwritetask",
		"maxpages",
		"maxpagesnode",
		"maxpagestask",
		"maxrssnode",
		"maxrsstask",
		"maxvmsizenode",
		"maxvmsizetask",
		"mincpu",
		"mincpunode",
		"mincputask",
		"planned",
		"plannedcpu",
		"plannedcpuraw",
		"qosraw",
		"reqcpufreq",
		"reqcpufreqmin",
		"reqcpufreqmax",
		"reqcpufreqgov",
		"reqgres",
		"reqnodes",
		"reservationid",
		"reserved",
		"resvcpu",
		"resvcpuraw",
		"restarts",
		"sluid",
		"stderr",
		"stdin",
		"stdout",
		"timeleft",
		"tresusageinave",
		"tresusageinmax",
		"tresusageinmaxnode",
		"tresusageinmaxtask",
		"tresusageinmin",
		"tresusageinminnode",
		"tresusageinmintask",
		"tresusageoutave",
		"tresusageoutmax",
		"tresusageoutmaxnode",
		"tresusageoutmaxtask",
		"tresusageoutmin",
		"tresusageoutminnode",
		"tresusageoutmintask",
		"tresusageouttot",
		"wckeyid",
	}
}

// ErrColumns tells a dump whose columns are not known, or too few.
var ErrColumns = errors.New("the dump's columns")

// layout is which field stands where.
type layout []field

// parseColumns reads a list of columns; "-" skips one. A length after % is
// read over.
func parseColumns(list []string) (layout, error) {
	known, out := columnNames(), layout{}
	for _, column := range list {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(column)), "%")
		wanted, ok := known[name]
		if !ok && name != "-" && !slices.Contains(ignoredColumns(), name) {
			return nil, fmt.Errorf("%w: sacct has no field %q", ErrColumns, column)
		}
		if wanted != skip && slices.Contains(out, wanted) {
			return nil, fmt.Errorf("%w: %q stands twice", ErrColumns, column)
		}
		out = append(out, wanted)
	}
	has := func(list ...field) bool {
		return slices.ContainsFunc(list, func(wanted field) bool { return slices.Contains(out, wanted) })
	}
	switch {
	case !has(fJobID, fJobIDRaw):
		return nil, fmt.Errorf("%w: JobID or JobIDRaw is missing", ErrColumns)
	case !has(fSubmit):
		return nil, fmt.Errorf(
			"%w: Submit is missing: without it a job that was queued again cannot be told from itself",
			ErrColumns,
		)
	case !has(fStart) || !has(fEnd):
		return nil, fmt.Errorf("%w: Start and End are missing", ErrColumns)
	case !has(fState):
		return nil, fmt.Errorf("%w: State is missing", ErrColumns)
	}
	return out, nil
}

// isHeader tells whether a line names columns.
func isHeader(cells []string) bool {
	known, named := columnNames(), 0
	for _, cell := range cells {
		if _, ok := known[strings.ToLower(cell)]; ok {
			named++
		}
	}
	return named >= 3 && named*2 >= len(cells)
}
