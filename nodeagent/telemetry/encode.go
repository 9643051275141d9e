package telemetry

import (
	"bytes"
	"runtime"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/spec"
)

// scratch is the memory of one scrape.
type scratch struct {
	out    []byte
	raw    bytes.Buffer
	cursor []int
}

// encodeState prints a state into w.out.
func (t *Telemetry) encodeState(w *scratch, s *state) {
	w.out = w.out[:0]
	t.fieldSeries(w, s)
	t.gpuSeries(w, s)
	t.jobSeries(w, s)
	t.accountSeries(w, s)
	t.nodeCounters(w, s)
	t.energySeries(w, s)
	t.nodeSeries(w, s)
	t.printGauges(w, s)
	w.raw.Reset()
	t.self.set.WritePrometheus(&w.raw)
	t.annotateSeries(w)
	if t.options.NoProcess {
		return
	}
	w.raw.Reset()
	metrics.WriteGoMetrics(&w.raw)
	metrics.WriteProcMetrics(&w.raw)
	metrics.WriteFDMetrics(&w.raw)
	t.annotateSeries(w)
}

// printHead prints the HELP and TYPE lines of a family.
func (w *scratch) printHead(name, help, kind string) {
	w.out = append(w.out, "# HELP "...)
	w.out = append(w.out, name...)
	w.out = append(w.out, ' ')
	w.out = append(w.out, help...)
	w.out = append(w.out, "\n# TYPE "...)
	w.out = append(w.out, name...)
	w.out = append(w.out, ' ')
	w.out = append(w.out, kind...)
	w.out = append(w.out, '\n')
}

// printSample prints one sample whose value is n / 10^decimals.
func (w *scratch) printSample(name, labels, more string, n int64, decimals int) {
	w.out = append(w.out, name...)
	w.out = append(w.out, '{')
	w.out = append(w.out, labels...)
	if more != "" {
		w.out = append(w.out, ',')
		w.out = append(w.out, more...)
	}
	w.out = append(w.out, '}', ' ')
	w.out = appendFixed(w.out, n, decimals)
	w.out = append(w.out, '\n')
}

// appendFixed prints n / 10^decimals without trailing zeros.
func appendFixed(buffer []byte, n int64, decimals int) []byte {
	u := uint64(n)
	if n < 0 {
		buffer = append(buffer, '-')
		u = -u
	}
	scale := uint64(1)
	for i := 0; i < decimals; i++ {
		scale *= 10
	}
	buffer = strconv.AppendUint(buffer, u/scale, 10)
	rest := u % scale
	if rest == 0 {
		return buffer
	}
	buffer = append(buffer, '.')
	for scale /= 10; rest > 0; scale /= 10 {
		buffer = append(buffer, byte('0'+rest/scale))
		rest %= scale
	}
	return buffer
}

// fieldSeries prints every field of every device: one series each.
func (t *Telemetry) fieldSeries(w *scratch, s *state) {
	w.cursor = append(w.cursor[:0], make([]int, len(s.entities))...)
	for i := range t.fields {
		info := &t.fields[i]
		labelled := t.isLabelled(*info)
		began := false
		for j := range s.entities {
			e := &s.entities[j]
			if e.reading == nil {
				continue
			}
			values := e.reading.Values // ascending, like t.fields
			c := w.cursor[j]
			for c < len(values) && values[c].Field < info.Field {
				c++
			}
			w.cursor[j] = c
			if c == len(values) || values[c].Field != info.Field {
				continue
			}
			if !began {
				w.printHead(info.Name, info.Help, info.Kind.String())
				began = true
			}
			owner := ""
			if labelled {
				owner = e.owner
			}
			w.printSample(info.Name, e.labels, owner, values[c].N, info.Decimals)
		}
	}
}

// printFamily prints a family of Muster's own: each calls emit for its series.
func (t *Telemetry) printFamily(
	w *scratch,
	name string,
	each func(emit func(labels, more string, n int64, decimals int)),
) {
	began := false
	each(func(labels, more string, n int64, decimals int) {
		if !began {
			metric := t.listed[name]
			w.printHead(name, metric.Help, metric.Type.String())
			began = true
		}
		w.printSample(name, labels, more, n, decimals)
	})
}

type emit = func(labels, more string, n int64, decimals int)

// gpuSeries prints what joins devices and jobs.
func (t *Telemetry) gpuSeries(w *scratch, s *state) {
	t.printFamily(w, "muster_gpu_up", func(put emit) {
		for i := range s.entities {
			if e := &s.entities[i]; e.reading != nil || e.lost {
				put(e.labels, "", int64(boolFigure(e.reading != nil && !e.reading.Lost)), 0)
			}
		}
	})
	t.printFamily(w, "muster_gpu_link_info", func(put emit) {
		for i := range s.entities {
			if e := &s.entities[i]; e.link != "" {
				put(e.labels, e.link, 1, 0)
			}
		}
	})
	t.printFamily(w, "muster_gpu_job_info", func(put emit) {
		for i := range s.entities {
			if e := &s.entities[i]; e.info != "" {
				put(e.labels, e.info, 1, 0)
			}
		}
	})
	t.printFamily(w, "muster_gpu_pod_info", func(put emit) {
		for i := range s.entities {
			if e := &s.entities[i]; e.pod != "" {
				put(e.labels, e.pod, 1, 0)
			}
		}
	})
	t.printFamily(w, "muster_gpu_job_share_ratio", func(put emit) {
		for i := range s.entities {
			for _, sh := range s.entities[i].shares {
				put(s.entities[i].labels, sh.labels, int64(sh.part), 3)
			}
		}
	})
}

// jobSeries prints what the running jobs have used.
func (t *Telemetry) jobSeries(w *scratch, s *state) {
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	each := func(name string, one func(j *JobOnNode, u *JobUsage, put emit)) {
		t.printFamily(w, name, func(put emit) {
			for i := range s.jobs {
				job := &s.jobs[i]
				var usage *JobUsage
				if got, ok := s.usage[jobKey{job.UID, job.Attempt}]; ok {
					usage = &got
				}
				one(job, usage, func(_, more string, n int64, decimals int) {
					labels := s.jobText[i]
					if more != "" {
						labels += "," + more
					}
					put(node, labels, n, decimals)
				})
			}
		})
	}
	used := func(name string, decimals int, get func(*JobUsage) int64) {
		each(name, func(_ *JobOnNode, usage *JobUsage, put emit) {
			if usage != nil {
				put("", "", get(usage), decimals)
			}
		})
	}
	each(
		"muster_job_cpus",
		func(j *JobOnNode, _ *JobUsage, put emit) { put("", "", int64(j.CPUs), 0) },
	)
	each("muster_job_cpu_seconds_total", func(_ *JobOnNode, usage *JobUsage, put emit) {
		if usage != nil {
			put("", `mode="user"`, usage.UserNS, 9)
			put("", `mode="system"`, usage.SystemNS, 9)
		}
	})
	used("muster_job_memory_bytes", 0, func(u *JobUsage) int64 { return u.MemoryBytes })
	used("muster_job_memory_peak_bytes", 0, func(u *JobUsage) int64 { return u.PeakBytes })
	each("muster_job_memory_limit_bytes", func(jobOnNode *JobOnNode, _ *JobUsage, put emit) {
		if jobOnNode.Memory > 0 {
			put("", "", jobOnNode.Memory, 0)
		}
	})
	used("muster_job_oom_kills_total", 0, func(u *JobUsage) int64 { return u.OOMKills })
	used("muster_job_io_read_bytes_total", 0, func(u *JobUsage) int64 { return u.ReadBytes })
	used("muster_job_io_written_bytes_total", 0, func(u *JobUsage) int64 { return u.WriteBytes })
	used("muster_job_processes", 0, func(u *JobUsage) int64 { return u.Processes })
	counted := func(name string, decimals int, list []counterSeries) {
		each(name, func(_ *JobOnNode, usage *JobUsage, put emit) {
			for _, series := range list {
				if usage == nil {
					return
				}
				if n, ok := series.get(usage.Counters); ok {
					put("", series.labels, n, decimals)
				}
			}
		})
	}
	const microseconds = 6 // decimals of seconds
	counted("muster_job_network_bytes_total", 0, networkSeries())
	counted("muster_job_loopback_bytes_total", 0, []counterSeries{{"", spec.CounterNetLoopback, 0}})
	counted("muster_job_fabric_bytes_total", 0, fabricSeries())
	counted("muster_job_filesystem_bytes_total", 0, filesystemSeries())
	counted("muster_job_stall_seconds_total", microseconds, []counterSeries{
		{`resource="cpu"`, spec.CounterCPUStall, 0},
		{`resource="memory"`, spec.CounterMemStall, 0},
		{`resource="io"`, spec.CounterIOStall, 0},
	})
	counted("muster_job_throttled_seconds_total", microseconds, []counterSeries{{"", spec.CounterThrottled, 0}})
}

// counterSeries is one series that shows a counter, or it without a part of it.
type counterSeries struct {
	labels  string
	counter spec.Counter
	without spec.Counter // 0: all of it
}

func (c *counterSeries) get(list spec.CounterValues) (int64, bool) {
	n, ok := list.Get(c.counter)
	part, _ := list.Get(c.without)
	return n - part, ok
}

func networkSeries() []counterSeries {
	return []counterSeries{
		{`direction="in",family="ipv4"`, spec.CounterNetIn, spec.CounterNetIn6},
		{`direction="in",family="ipv6"`, spec.CounterNetIn6, 0},
		{`direction="out",family="ipv4"`, spec.CounterNetOut, spec.CounterNetOut6},
		{`direction="out",family="ipv6"`, spec.CounterNetOut6, 0},
	}
}

func fabricSeries() []counterSeries {
	return []counterSeries{
		{`direction="in"`, spec.CounterFabricIn, 0},
		{`direction="out"`, spec.CounterFabricOut, 0},
	}
}

func filesystemSeries() []counterSeries {
	return []counterSeries{
		{`filesystem="lustre",direction="in"`, spec.CounterLustreRead, 0},
		{`filesystem="lustre",direction="out"`, spec.CounterLustreWrite, 0},
		{`filesystem="nfs",direction="in"`, spec.CounterNFSRead, 0},
		{`filesystem="nfs",direction="out"`, spec.CounterNFSWrite, 0},
	}
}

// accountSeries prints what the jobs have done with their GPUs.
func (t *Telemetry) accountSeries(w *scratch, s *state) {
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	type line struct {
		labels string
		a      *attrib.Account
	}
	var lines, shared []line
	for i := range s.accounts {
		account := &s.accounts[i]
		if j := s.findJob(jobKey{account.Job, account.Attempt}); j >= 0 {
			gpu := labelPairs([]string{"gpu", "gpu_uuid"}, s.deviceIndex(account.GPU), account.GPU)
			l := line{s.jobText[j] + "," + gpu, account}
			if account.Share < 1000 {
				shared = append(shared, l)
			} else {
				lines = append(lines, l)
			}
		}
	}
	t.printFamily(w, "muster_job_gpu_seconds_total", func(put emit) {
		for _, l := range lines {
			put(node, l.labels+`,state="no_process"`, l.a.NoProcess, 9)
			put(node, l.labels+`,state="idle"`, l.a.Idle, 9)
			put(node, l.labels+`,state="busy"`, l.a.Busy, 9)
			put(node, l.labels+`,state="unobserved"`, l.a.Unobserved, 9)
		}
	})
	t.printFamily(w, "muster_job_gpu_energy_joules_total", func(put emit) {
		for _, l := range lines {
			if l.a.EnergySeen > 0 {
				put(node, l.labels, l.a.EnergyMJ, 3)
			}
		}
	})
	t.printFamily(w, "muster_job_gpu_attributed_seconds_total", func(put emit) {
		for _, l := range shared {
			for _, part := range []struct {
				state string
				ns    int64
			}{{"no_process", l.a.NoProcess}, {"idle", l.a.Idle}, {"busy", l.a.Busy}, {"unobserved", l.a.Unobserved}} {
				put(node, l.labels+`,state="`+part.state+`"`, part.ns/1000*l.a.Share, 9)
			}
		}
	})
	t.printFamily(w, "muster_job_gpu_attributed_energy_joules_total", func(put emit) {
		for _, l := range shared {
			if l.a.EnergySeen > 0 {
				put(node, l.labels, l.a.EnergyMJ, 3)
			}
		}
	})
	t.printFamily(w, "muster_job_gpu_memory_peak_bytes", func(put emit) {
		for _, l := range lines {
			put(node, l.labels, l.a.MemoryPeakMiB<<20, 0)
		}
	})
}

// nodeCounters prints what the node as a whole has counted.
func (t *Telemetry) nodeCounters(w *scratch, s *state) {
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	print := func(name string, list []counterSeries) {
		t.printFamily(w, name, func(put emit) {
			for _, series := range list {
				if n, ok := series.get(s.counters); ok {
					put(node, series.labels, n, 0)
				}
			}
		})
	}
	print("muster_node_fabric_bytes_total", fabricSeries())
	print("muster_node_filesystem_bytes_total", filesystemSeries())
}

// energySeries prints what the node and its jobs have used.
func (t *Telemetry) energySeries(w *scratch, s *state) {
	if s.energy == nil {
		return
	}
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	t.printFamily(w, "muster_job_energy_joules_total", func(put emit) {
		for _, job := range s.energy.Jobs {
			if i := s.findJob(jobKey{job.UID, job.Attempt}); i >= 0 {
				put(node, s.jobText[i], job.MJ, 3)
			}
		}
	})
	source := labelPairs([]string{"source"}, s.energy.Source)
	for _, figure := range []struct {
		name  string
		milli int64
	}{
		{"muster_node_energy_joules_total", s.energy.NodeMJ},
		{"muster_node_unallocated_energy_joules_total", s.energy.NobodyMJ},
		{"muster_node_power_watts", s.energy.MilliWatts},
		{"muster_node_idle_power_watts", s.energy.IdleMilliWatts},
	} {
		t.printFamily(w, figure.name, func(put emit) { put(node, source, figure.milli, 3) })
	}
}

// nodeSeries prints the node's own figures.
func (t *Telemetry) nodeSeries(w *scratch, s *state) {
	stats := s.node
	if stats == nil {
		return
	}
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	one := func(name string, v int64, decimals int) {
		t.printFamily(w, name, func(put emit) { put(node, "", v, decimals) })
	}
	one("muster_node_cpus", int64(stats.CPUs), 0)
	t.printFamily(w, "muster_node_cpu_seconds_total", func(put emit) {
		for _, m := range []struct {
			mode string
			ns   int64
		}{{"user", stats.UserNS}, {"nice", stats.NiceNS}, {"system", stats.SystemNS},
			{"idle", stats.IdleNS},
			{"iowait", stats.IOWaitNS}, {"irq", stats.IRQNS}, {"softirq", stats.SoftIRQNS},
			{"steal", stats.StealNS}} {
			put(node, `mode="`+m.mode+`"`, m.ns, 9)
		}
	})
	one("muster_node_memory_bytes", stats.MemoryBytes, 0)
	one("muster_node_memory_available_bytes", stats.MemoryAvailable, 0)
	t.printFamily(w, "muster_node_load", func(put emit) {
		for i, window := range []string{"1m", "5m", "15m"} {
			put(node, `window="`+window+`"`, stats.LoadCenti[i], 2)
		}
	})
	one("muster_node_boot_time_seconds", int64(stats.BootTime), 9)
	if stats.TmpDiskBytes > 0 {
		one("muster_node_tmp_disk_bytes", stats.TmpDiskBytes, 0)
		one("muster_node_tmp_disk_available_bytes", stats.TmpDiskAvailable, 0)
	}
}

// printGauges prints what follows from the state about the agent.
func (t *Telemetry) printGauges(w *scratch, s *state) {
	node := labelPairs(nodeLabels[:], t.options.Cluster, t.options.Node)
	one := func(name string, v int64, decimals int) {
		t.printFamily(w, name, func(put emit) { put(node, "", v, decimals) })
	}
	one("muster_agent_jobs", int64(len(s.jobs)+s.omitted), 0)
	one("muster_agent_jobs_without_series", int64(s.omitted), 0)
	at := spec.Instant(0)
	if s.sample != nil {
		at = s.sample.At
	}
	one("muster_agent_last_collection_time_seconds", int64(at), 9)
}

// annotateSeries copies the series in w.raw to w.out with HELP and TYPE lines, and
// leaves out the families that are not listed. The library groups series by
// family but has no help texts.
func (t *Telemetry) annotateSeries(w *scratch) {
	last := ""
	for rest := w.raw.String(); rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		end := strings.IndexAny(line, "{ ")
		if end <= 0 || line[0] == '#' {
			continue
		}
		metric, ok := t.lookUpFamily(line[:end])
		if !ok {
			continue
		}
		if metric.Name != last {
			w.printHead(metric.Name, metric.Help, metric.Type.String())
			last = metric.Name
		}
		w.out = append(w.out, line...)
		w.out = append(w.out, '\n')
	}
}

// lookUpFamily finds the family of a series name.
func (t *Telemetry) lookUpFamily(series string) (catalogue.Metric, bool) {
	if metric, ok := t.listed[series]; ok {
		return metric, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(series, suffix); cut {
			if metric, ok := t.listed[base]; ok && metric.Type == catalogue.Histogram {
				return metric, true
			}
		}
	}
	return catalogue.Metric{}, false
}

func goVersion() string { return runtime.Version() }
