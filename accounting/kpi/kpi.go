// Package kpi defines Muster's figures about a cluster, once: name, unit,
// formula, SQL, metric, edge cases and source. The command line, the reports,
// the metrics, the rules, the dashboards and docs/kpis.md are all made from
// these definitions.
//
// A figure is Num / Den, both SQL aggregates over the rows of a Source within
// a window of time. Where Den is 0 or nothing was measured the figure is
// missing (NULL), which is never shown as zero.
//
// Time-like amounts of a run that overlaps a window's edge are shared out
// evenly over its length, and the part within the window counts; counts belong
// to the instant of what is counted.
package kpi

import (
	"cmp"
	"slices"
	"strings"
)

// Unit is what a figure is measured in.
type Unit string

// The units.
const (
	Ratio       Unit = "ratio"   // shown as a percentage
	Seconds     Unit = "seconds" // of waiting
	ByteHours   Unit = "byte-hours"
	GPUHours    Unit = "GPU-hours"
	JobsPerHour Unit = "jobs per hour"
	Times       Unit = "times"
	PerDay      Unit = "per day"
	KWh         Unit = "kWh"
	KgCO2       Unit = "kg CO2e"
	Money       Unit = "money" // in the site's currency
)

// Source is what the rows are that a figure is computed over.
type Source string

// The sources. Package query makes the columns that the definitions use.
const (
	// Runs: every run that ran in the window, over or not. Columns: overlap_s
	// (seconds of it within the window), started_in, ended_in (whether it
	// started, ended within), ran (it has started), wait_s (start - submit),
	// run_s (start to end, or to the window's end), active (the part of run_s
	// that it was not suspended), state, count (jobs it stands for), alloc_cpus,
	// alloc_gpus, alloc_nodes, cost (of the part within the window, NULL without
	// prices). Beside these, with an overlap of 0: runs that ended in the window
	// without having started, and those that wait at its end. waits and
	// eligible_wait_s are about the wait since a run was eligible: to its start
	// if that is in the window, to its end if it ended in it unstarted, to the
	// window's end if it waits then.
	Runs Source = "runs"
	// Nodes: each node's part of each run, as far as it was measured there: in
	// whole once it is over, by samples until then.
	// Columns: overlap_s, share (overlap_s by its whole length), cpus, cpu_s
	// (CPU time used), mem_bytes, peak_rss (bytes, NULL = not measured).
	Nodes Source = "nodes"
	// GPUs: each device of each run, where it was measured: in whole once it is
	// over, by samples until then and where the window cuts it.
	// Columns: overlap_s, share, util_s (integral of utilisation), held_idle_s
	// (no process, or a process without work), busy_s, sm_s (integral of SM
	// activity; NULL = not measured).
	GPUs Source = "gpus"
	// Energy: what each node (without its GPUs) and each device measured for a
	// run; of one that is not over, its devices only. Columns: energy_j, share, carbon_g (of
	// the part within the window; NULL without a carbon intensity).
	Energy Source = "energy"
	// Ladder: one row of what became of the GPU time that was bought. Columns:
	// bought_us, and one for each of Steps. It is of the cluster only.
	Ladder Source = "ladder"
	// Associations: what each association used, and its share. These figures
	// are computed by Drift, not by SQL.
	Associations Source = "associations"
)

// Sources lists those whose figures are SQL.
func Sources() []Source { return []Source{Ladder, Runs, Nodes, GPUs, Energy} }

// Capacity names a denominator that is the cluster's, not the rows': what the
// nodes in the cluster offered over the window, in or out of service.
type Capacity string

// The capacities.
const (
	NoCapacity  Capacity = ""
	CPUCapacity Capacity = "capacity_cpu_s"
	GPUCapacity Capacity = "capacity_gpu_s"
)

// KPI is one definition.
type KPI struct {
	Name    string
	Title   string
	Unit    Unit
	Formula string // in words
	Source  Source
	Num     string   // SQL
	Den     string   // SQL; empty = Num is the figure
	Over    Capacity // the denominator, where it is the cluster's
	PerHour bool     // divide by the window's length in hours
	// Metric is the name in Prometheus, and Scale what the figure is multiplied
	// with to be in the metric's base unit. Definitions that differ in the class
	// of failure only share a metric and differ in its label class.
	Metric string
	Class  string
	Scale  float64
	Edges  []string
	From   string // where the rows come from
}

// Failed are the states that count as a failure. A cancelled or preempted job,
// or one that was asked to run again, is neither a failure nor a success.
const Failed = "('FAILED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'BOOT_FAIL', 'DEADLINE')"

// judged is a condition of Runs.
const judged = "ended_in AND (state = 'COMPLETED' OR state IN " + Failed + ")"

// Find returns a definition by name.
func Find(name string) (KPI, bool) {
	for _, kpi := range All() {
		if kpi.Name == name {
			return kpi, true
		}
	}
	return KPI{}, false
}

// Dimension is what figures are broken down by.
type Dimension string

// The dimensions; the names are those of columns.
const (
	ByCluster   Dimension = "cluster"
	ByPartition Dimension = "partition"
	ByAccount   Dimension = "account"
	ByUser      Dimension = "user"
	ByQOS       Dimension = "qos"
)

// Dimensions lists them.
func Dimensions() []Dimension {
	return []Dimension{ByCluster, ByPartition, ByAccount, ByUser, ByQOS}
}

// Window is a length of time that ends now.
type Window struct {
	Name    string
	Seconds int64
}

// Windows lists the windows that are computed all the time.
func Windows() []Window {
	return []Window{{"1h", 3600}, {"1d", 86_400}, {"7d", 7 * 86_400}, {"30d", 30 * 86_400}}
}

// Value is one computed figure; Null where there is none.
type Value struct {
	KPI    string
	By     Dimension
	Key    string // of the dimension: the account's name; the cluster's for ByCluster
	Window string
	Null   bool
	Value  float64 // in the definition's unit
}

// MaxKeys is how many keys of a dimension are published as metrics: the
// largest by what they were allocated. The others are in `muster kpi`.
const MaxKeys = 200

// Bound leaves out the figures of all but the n largest keys of each
// dimension. Large is who was allocated most of the cluster in any window.
func Bound(values []Value, n int) []Value {
	type key struct {
		by  Dimension
		key string
	}
	size := map[key]float64{}
	dims := map[Dimension][]key{}
	for i := range values {
		value := &values[i]
		k := key{value.By, value.Key}
		if _, ok := size[k]; !ok {
			size[k] = 0
			dims[value.By] = append(dims[value.By], k)
		}
		if (value.KPI == "utilisation" || value.KPI == "gpu_allocation") && !value.Null {
			size[k] = max(size[k], value.Value)
		}
	}
	gone := map[key]bool{}
	for _, dimension := range Dimensions() {
		list := dims[dimension]
		slices.SortFunc(
			list,
			func(a, b key) int { return cmp.Or(cmp.Compare(size[b], size[a]), strings.Compare(a.key, b.key)) },
		)
		for i := n; i < len(list); i++ {
			gone[list[i]] = true
		}
	}
	if len(gone) == 0 {
		return values
	}
	return slices.DeleteFunc(
		slices.Clone(values),
		func(v Value) bool { return gone[key{v.By, v.Key}] },
	)
}
