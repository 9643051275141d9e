package slurmconf

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// maxNodes bounds a cluster.
const maxNodes = 100_000

// buildNodes makes the nodes of all records, in order, and applies DownNodes.
// It returns each node's place in Config.Nodes.
func (b *builder) buildNodes() map[string]int {
	at := make(map[string]int)
	lines := make(map[string]Setting)
	for i := range b.nodes {
		d := &b.nodes[i]
		names, ok := b.expandHosts(d.at, "NodeName", d.Name)
		if !ok {
			continue
		}
		if len(names)+len(b.file.Config.Nodes) > maxNodes {
			b.problems.addProblem(d.at, Error, "more than %d nodes", maxNodes)
			return at
		}
		b.fillShape(d)
		b.nodeGres(d)
		hosts := b.pairWithNodes(d, "NodeHostname", d.hosts, names)
		addrs := b.pairWithNodes(d, "NodeAddr", d.addrs, hosts)
		ports := b.readPorts(d, len(names))
		var again []string
		for k, name := range names {
			if _, twice := at[name]; twice {
				again = append(again, name)
				continue
			}
			at[name], lines[name] = len(b.file.Config.Nodes), d.at
			n := d.NodeSpec
			n.Name = name
			n.Hostname = hosts[k]
			n.Addr = addrs[k]
			n.Port = ports[k]
			n.GRES = slices.Clone(d.gres)
			b.file.Config.Nodes = append(b.file.Config.Nodes, n)
		}
		if len(again) > 0 {
			b.problems.addProblem(d.at, Error, "%s stands in the record of %s already", hostlist.Fold(again), namePlace(d.at, lines[again[0]]))
		}
	}
	for _, d := range b.downs {
		b.applyDown(d, at)
	}
	return at
}

// expandHosts expands a node list of a record.
func (b *builder) expandHosts(s Setting, key, expr string) ([]string, bool) {
	s.Key = key
	names, err := hostlist.Expand(expr)
	switch {
	case err != nil:
		b.problems.addProblem(s, Error, "%s", err)
		return nil, false
	case len(names) == 0:
		b.problems.addProblem(s, Error, "names no node")
		return nil, false
	}
	for _, n := range names {
		if strings.EqualFold(n, "ALL") || strings.EqualFold(n, "DEFAULT") {
			b.problems.addProblem(s, Error, "%s is a reserved word", n)
			return nil, false
		}
	}
	return names, true
}

// pairWithNodes pairs a list with the nodes: one for all, or one for each.
func (b *builder) pairWithNodes(d *nodeDraft, key, expr string, otherwise []string) []string {
	if expr == "" {
		return otherwise
	}
	got, err := hostlist.Expand(expr)
	switch {
	case err != nil:
		b.problems.addProblem(d.setting(key), Error, "%s", err)
	case len(got) == 1:
		return slices.Repeat(got, len(otherwise))
	case len(got) == len(otherwise):
		return got
	default:
		b.problems.addProblem(d.setting(key), Error, "%d names for %d nodes", len(got), len(otherwise))
	}
	return otherwise
}

func (d *nodeDraft) setting(key string) Setting {
	return Setting{Key: key, File: d.at.File, Line: d.at.Line}
}

// readPorts reads Port=7000 or Port=[7000-7009].
func (b *builder) readPorts(d *nodeDraft, n int) []uint32 {
	out := make([]uint32, n)
	if d.ports == "" {
		return out
	}
	names, err := hostlist.Expand(d.ports)
	if err != nil || (len(names) != 1 && len(names) != n) {
		b.problems.addProblem(d.setting("Port"), Error, "%s: expected one port, or one for each of %d nodes", quoteShort(d.ports), n)
		return out
	}
	for i := range out {
		p, err := strconv.ParseUint(names[min(i, len(names)-1)], 10, 16)
		if err != nil || p == 0 {
			b.problems.addProblem(d.setting("Port"), Error, "%s is no port", quoteShort(names[min(i, len(names)-1)]))
			return out
		}
		out[i] = uint32(p)
	}
	return out
}

// fillShape fills sockets, cores and threads, and checks them against CPUs.
func (b *builder) fillShape(d *nodeDraft) {
	d.Boards, d.CoresPerSocket, d.ThreadsPerCore = max(1, d.Boards), max(1, d.CoresPerSocket), max(1, d.ThreadsPerCore)
	perSocket := d.CoresPerSocket * d.ThreadsPerCore
	switch {
	case d.Sockets > 0 && d.socketsPerBoard > 0 && d.Sockets != d.Boards*d.socketsPerBoard:
		b.problems.addProblem(d.setting("Sockets"), Error, "%d sockets are not %d boards of %d", d.Sockets, d.Boards, d.socketsPerBoard)
	case d.Sockets > 0:
	case d.socketsPerBoard > 0:
		d.Sockets = d.Boards * d.socketsPerBoard
	default:
		d.Sockets = max(1, d.cpus/perSocket)
	}
	cores, threads := d.Sockets*d.CoresPerSocket, d.Sockets*perSocket
	switch d.cpus {
	case 0:
		d.CPUs = threads
	case d.Sockets, cores, threads:
		d.CPUs = d.cpus
	default:
		b.problems.addProblem(d.setting("CPUs"), Error, "%d is neither the number of sockets (%d) nor of cores (%d) nor of threads (%d)", d.cpus, d.Sockets, cores, threads)
	}
	if d.Mem == 0 {
		d.Mem = 1
		if b.file.Config.Sched.Memory && d.State != "FUTURE" {
			b.problems.addProblem(d.setting("RealMemory"), Warning, "is not given, so it is Slurm's default of 1 MB, and no job will fit")
		}
	}
	if d.MemSpecLimit >= d.Mem && d.MemSpecLimit > 0 {
		b.problems.addProblem(d.setting("MemSpecLimit"), Error, "%s are kept from jobs, but the node has %s", format.TRESMemory(d.MemSpecLimit), format.TRESMemory(d.Mem))
	}
	if d.CoreSpecCount >= cores && d.CoreSpecCount > 0 {
		b.problems.addProblem(d.setting("CoreSpecCount"), Error, "%d cores are kept from jobs, but the node has %d", d.CoreSpecCount, cores)
	}
	b.checkReservedCPUs(d, threads)
	if d.Weight == 0 {
		d.Weight = 1
	}
}

// checkReservedCPUs checks the CPUs that a node keeps for the system, and keeps whole
// cores.
func (b *builder) checkReservedCPUs(d *nodeDraft, threads int64) {
	if d.Reserved.Empty() {
		return
	}
	s, step := d.setting("CPUSpecList"), 1
	if d.CPUs == threads {
		step = int(d.ThreadsPerCore)
	}
	whole := d.Reserved.Clone()
	for cpu := whole.Next(0); cpu >= 0; cpu = whole.Next(cpu + 1) {
		for k := cpu - cpu%step; k < cpu-cpu%step+step; k++ {
			whole = whole.Set(k)
		}
	}
	switch {
	case d.CoreSpecCount > 0:
		b.problems.addProblem(s, Error, "cannot be combined with CoreSpecCount")
	case int64(whole.Last()) >= d.CPUs:
		b.problems.addProblem(s, Error, "CPU %d is kept from jobs, but the node has %d", d.Reserved.Last(), d.CPUs)
	case int64(whole.Count()) == d.CPUs:
		b.problems.addProblem(s, Error, "no CPU is left for jobs")
	case whole.Count() != d.Reserved.Count():
		b.problems.addProblem(s, Warning, "whole cores are kept from jobs: %s", whole.Ranges())
	}
	d.Reserved, d.CPUSpecList = whole.Trim(), whole.Ranges()
}

// nodeGres checks that every resource of a node is declared.
func (b *builder) nodeGres(d *nodeDraft) {
	b.nodeShares(d)
	for _, g := range d.gres {
		if !slices.Contains(b.file.Config.GresTypes, g.Name) {
			if near := nearestName(g.Name, b.file.Config.GresTypes); near != "" {
				b.problems.addProblem(d.setting("Gres"), Error, "%s is not in GresTypes; did you mean %s?", g.Name, near)
			} else {
				b.problems.addProblem(d.setting("Gres"), Error, "%s is not in GresTypes", g.Name)
			}
		}
	}
}

// nodeShares checks what GPUs of a node are shared as.
func (b *builder) nodeShares(d *nodeDraft) {
	gpus, name := int64(0), ""
	for _, g := range d.gres {
		if g.Name == "gpu" {
			gpus += g.N
		}
	}
	for _, g := range d.gres {
		switch {
		case !spec.Shares(g.Name):
			continue
		case gpus == 0:
			b.problems.addProblem(d.setting("Gres"), Error, "%s is a part of a GPU, and the node has none: write gpu:N,%s:%d", g.Name, g.Name, g.N)
		case g.NoConsume:
			b.problems.addProblem(d.setting("Gres"), Error, "%s: what of a GPU is shared is counted, so it cannot be no_consume", g.Name)
		case g.N < gpus:
			b.problems.addProblem(d.setting("Gres"), Error, "%s:%d is less than one for each of %d GPUs", g.Name, g.N, gpus)
		case name != "" && name != g.Name:
			b.problems.addProblem(d.setting("Gres"), Error, "%s and %s: the GPUs of a node are shared in one way", name, g.Name)
		}
		name = g.Name
	}
}

// parseGres reads gpu:h100:8,lustre:no_consume:4G.
func parseGres(v value) []spec.GRESSpec {
	var out []spec.GRESSpec
	for _, item := range gresItems(v.Value) {
		if strings.EqualFold(item, "(null)") || strings.EqualFold(item, "none") {
			continue
		}
		body := item
		if at := strings.IndexByte(body, '('); at >= 0 {
			// Sockets such as (S:0-1) come from copying scontrol's output.
			if !strings.HasSuffix(body, ")") {
				v.failValue("%s: expected name[:type][:count]", quoteShort(item))
				continue
			}
			body = body[:at]
		}
		parts := strings.Split(body, ":")
		g := spec.GRESSpec{Name: parts[0], N: 1}
		parts = parts[1:]
		if k := len(parts); k > 0 && parts[k-1] != "" && parts[k-1][0] >= '0' && parts[k-1][0] <= '9' {
			n, err := format.ParseCount(parts[k-1])
			switch {
			case err == nil:
				g.N, parts = n, parts[:k-1]
			case k > 1:
				v.failValue("%s: %s", quoteShort(item), err)
				continue
			}
		}
		for _, p := range parts {
			switch {
			case strings.EqualFold(p, "no_consume"):
				g.NoConsume = true
			case g.Type == "" && gresName(p):
				g.Type = p
			default:
				v.failValue("%s: expected name[:type][:count]", quoteShort(item))
			}
		}
		if !gresName(g.Name) {
			v.failValue("%s: expected name[:type][:count]", quoteShort(item))
			continue
		}
		if slices.ContainsFunc(out, func(o spec.GRESSpec) bool { return o.Name == g.Name && o.Type == g.Type }) {
			v.failValue("%s is named twice", quoteShort(body))
			continue
		}
		out = append(out, g)
	}
	return out
}

// gresItems splits at commas outside of parentheses.
func gresItems(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, s[from:i]), i+1
			}
		}
	}
	out = append(out, s[from:])
	return slices.DeleteFunc(out, func(p string) bool { return p == "" })
}

// applyDown marks nodes as a DownNodes record says.
func (b *builder) applyDown(d downDraft, at map[string]int) {
	names, err := hostlist.Expand(d.nodes)
	if err != nil {
		b.problems.addProblem(d.at, Error, "%s", err)
		return
	}
	var unknown []string
	for _, name := range names {
		k, ok := at[name]
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		n := &b.file.Config.Nodes[k]
		n.State, n.Reason = d.state, d.reason
		if n.State == "FAILING" {
			n.State = "FAIL"
		}
	}
	b.unknownNodes(d.at, unknown)
}

func (b *builder) unknownNodes(s Setting, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	known := make([]string, len(b.file.Config.Nodes), len(b.file.Config.Nodes)+len(b.sets))
	for i := range known {
		known[i] = b.file.Config.Nodes[i].Name
	}
	for _, d := range b.sets {
		known = append(known, d.name)
	}
	hint := ""
	if near := nearestName(unknown[0], known); near != "" && len(unknown) == 1 {
		hint = "; did you mean " + near + "?"
	}
	b.problems.addProblem(s, Error, "no NodeName record has %s%s", shorten(hostlist.Fold(unknown)), hint)
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// expandDevices expands File= of gres.conf: absolute paths with ranges in the last
// part, such as /dev/nvidia[0-7],/dev/nvidia9.
func expandDevices(expr string) ([]string, string) {
	var out []string
	for _, item := range outsideBrackets(expr) {
		dir, base := path.Split(item)
		if !strings.HasPrefix(dir, "/") || path.Clean(dir) != strings.TrimSuffix(dir, "/") && dir != "/" {
			return nil, quoteShort(item) + " is no absolute path"
		}
		for i := range len(dir) {
			if c := dir[i]; c != '/' && hostlist.CheckName(dir[i:i+1]) != nil {
				return nil, quoteShort(item) + " has a strange character in its folder"
			}
		}
		names, err := hostlist.Expand(base)
		if err != nil {
			return nil, err.Error()
		}
		if len(names) == 0 {
			return nil, quoteShort(item) + " names no file"
		}
		if len(out)+len(names) > maxDevices {
			return nil, "more than " + strconv.Itoa(maxDevices) + " files"
		}
		for _, n := range names {
			out = append(out, dir+n)
		}
	}
	if len(out) == 0 {
		return nil, "no file is named"
	}
	return out, ""
}

// maxDevices is Slurm's own limit of files per node.
const maxDevices = 1024

// outsideBrackets splits at commas that stand in no bracket.
func outsideBrackets(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, s[from:i]), i+1
			}
		}
	}
	return append(out, s[from:])
}
