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
		draft := &b.nodes[i]
		names, ok := b.expandHosts(draft.at, "NodeName", draft.Name)
		if !ok {
			continue
		}
		if len(names)+len(b.file.Config.Nodes) > maxNodes {
			b.problems.addProblem(draft.at, Error, "more than %d nodes", maxNodes)
			return at
		}
		b.fillShape(draft)
		b.nodeGres(draft)
		hosts := b.pairWithNodes(draft, "NodeHostname", draft.hosts, names)
		addrs := b.pairWithNodes(draft, "NodeAddr", draft.addrs, hosts)
		ports := b.readPorts(draft, len(names))
		var again []string
		for k, name := range names {
			if _, twice := at[name]; twice {
				again = append(again, name)
				continue
			}
			at[name], lines[name] = len(b.file.Config.Nodes), draft.at
			node := draft.NodeSpec
			node.Name = name
			node.Hostname = hosts[k]
			node.Addr = addrs[k]
			node.Port = ports[k]
			node.GRES = slices.Clone(draft.gres)
			b.file.Config.Nodes = append(b.file.Config.Nodes, node)
		}
		if len(again) > 0 {
			b.problems.addProblem(
				draft.at,
				Error,
				"%s stands in the record of %s already",
				hostlist.Fold(again),
				namePlace(draft.at, lines[again[0]]),
			)
		}
	}
	for _, draft := range b.downs {
		b.applyDown(draft, at)
	}
	return at
}

// expandHosts expands a node list of a record.
func (b *builder) expandHosts(setting Setting, key, expr string) ([]string, bool) {
	setting.Key = key
	names, err := hostlist.Expand(expr)
	switch {
	case err != nil:
		b.problems.addProblem(setting, Error, "%s", err)
		return nil, false
	case len(names) == 0:
		b.problems.addProblem(setting, Error, "names no node")
		return nil, false
	}
	for _, name := range names {
		if strings.EqualFold(name, "ALL") || strings.EqualFold(name, "DEFAULT") {
			b.problems.addProblem(setting, Error, "%s is a reserved word", name)
			return nil, false
		}
	}
	return names, true
}

// pairWithNodes pairs a list with the nodes: one for all, or one for each.
func (b *builder) pairWithNodes(draft *nodeDraft, key, expr string, otherwise []string) []string {
	if expr == "" {
		return otherwise
	}
	got, err := hostlist.Expand(expr)
	switch {
	case err != nil:
		b.problems.addProblem(draft.settingOf(key), Error, "%s", err)
	case len(got) == 1:
		return slices.Repeat(got, len(otherwise))
	case len(got) == len(otherwise):
		return got
	default:
		b.problems.addProblem(
			draft.settingOf(key),
			Error,
			"%d names for %d nodes",
			len(got),
			len(otherwise),
		)
	}
	return otherwise
}

func (d *nodeDraft) settingOf(key string) Setting {
	return Setting{Key: key, File: d.at.File, Line: d.at.Line}
}

// readPorts reads Port=7000 or Port=[7000-7009].
func (b *builder) readPorts(draft *nodeDraft, n int) []uint32 {
	out := make([]uint32, n)
	if draft.ports == "" {
		return out
	}
	names, err := hostlist.Expand(draft.ports)
	if err != nil || (len(names) != 1 && len(names) != n) {
		b.problems.addProblem(
			draft.settingOf("Port"),
			Error,
			"%s: expected one port, or one for each of %d nodes",
			quoteShort(draft.ports),
			n,
		)
		return out
	}
	for i := range out {
		p, err := strconv.ParseUint(names[min(i, len(names)-1)], 10, 16)
		if err != nil || p == 0 {
			b.problems.addProblem(
				draft.settingOf("Port"),
				Error,
				"%s is no port",
				quoteShort(names[min(i, len(names)-1)]),
			)
			return out
		}
		out[i] = uint32(p)
	}
	return out
}

// fillShape fills sockets, cores and threads, and checks them against CPUs.
func (b *builder) fillShape(draft *nodeDraft) {
	draft.Boards = max(1, draft.Boards)
	draft.CoresPerSocket = max(1, draft.CoresPerSocket)
	draft.ThreadsPerCore = max(1, draft.ThreadsPerCore)
	perSocket := draft.CoresPerSocket * draft.ThreadsPerCore
	switch {
	case draft.Sockets > 0 && draft.socketsPerBoard > 0 && draft.Sockets != draft.Boards*draft.socketsPerBoard:
		b.problems.addProblem(
			draft.settingOf("Sockets"),
			Error,
			"%d sockets are not %d boards of %d",
			draft.Sockets,
			draft.Boards,
			draft.socketsPerBoard,
		)
	case draft.Sockets > 0:
	case draft.socketsPerBoard > 0:
		draft.Sockets = draft.Boards * draft.socketsPerBoard
	default:
		draft.Sockets = max(1, draft.cpus/perSocket)
	}
	cores, threads := draft.Sockets*draft.CoresPerSocket, draft.Sockets*perSocket
	switch draft.cpus {
	case 0:
		draft.CPUs = threads
	case draft.Sockets, cores, threads:
		draft.CPUs = draft.cpus
	default:
		b.problems.addProblem(
			draft.settingOf("CPUs"),
			Error,
			"%d is neither the number of sockets (%d) nor of cores (%d) nor of threads (%d)",
			draft.cpus,
			draft.Sockets,
			cores,
			threads,
		)
	}
	if draft.Mem == 0 {
		draft.Mem = 1
		if b.file.Config.Sched.Memory && draft.State != "FUTURE" {
			b.problems.addProblem(
				draft.settingOf("RealMemory"),
				Warning,
				"is not given, so it is Slurm's default of 1 MB, and no job will fit",
			)
		}
	}
	if draft.MemSpecLimit >= draft.Mem && draft.MemSpecLimit > 0 {
		b.problems.addProblem(
			draft.settingOf("MemSpecLimit"),
			Error,
			"%s are kept from jobs, but the node has %s",
			format.TRESMemory(draft.MemSpecLimit),
			format.TRESMemory(draft.Mem),
		)
	}
	if draft.CoreSpecCount >= cores && draft.CoreSpecCount > 0 {
		b.problems.addProblem(
			draft.settingOf("CoreSpecCount"),
			Error,
			"%d cores are kept from jobs, but the node has %d",
			draft.CoreSpecCount,
			cores,
		)
	}
	b.checkReservedCPUs(draft, threads)
	if draft.Weight == 0 {
		draft.Weight = 1
	}
}

// checkReservedCPUs checks the CPUs that a node keeps for the system, and keeps whole
// cores.
func (b *builder) checkReservedCPUs(draft *nodeDraft, threads int64) {
	if draft.Reserved.Empty() {
		return
	}
	setting, step := draft.settingOf("CPUSpecList"), 1
	if draft.CPUs == threads {
		step = int(draft.ThreadsPerCore)
	}
	whole := draft.Reserved.Clone()
	for cpu := whole.Next(0); cpu >= 0; cpu = whole.Next(cpu + 1) {
		for k := cpu - cpu%step; k < cpu-cpu%step+step; k++ {
			whole = whole.Set(k)
		}
	}
	switch {
	case draft.CoreSpecCount > 0:
		b.problems.addProblem(setting, Error, "cannot be combined with CoreSpecCount")
	case int64(whole.Last()) >= draft.CPUs:
		b.problems.addProblem(
			setting,
			Error,
			"CPU %d is kept from jobs, but the node has %d",
			draft.Reserved.Last(),
			draft.CPUs,
		)
	case int64(whole.Count()) == draft.CPUs:
		b.problems.addProblem(setting, Error, "no CPU is left for jobs")
	case whole.Count() != draft.Reserved.Count():
		b.problems.addProblem(
			setting,
			Warning,
			"whole cores are kept from jobs: %s",
			whole.Ranges(),
		)
	}
	draft.Reserved, draft.CPUSpecList = whole.Trim(), whole.Ranges()
}

// nodeGres checks that every resource of a node is declared.
func (b *builder) nodeGres(draft *nodeDraft) {
	b.nodeShares(draft)
	for _, gres := range draft.gres {
		if !slices.Contains(b.file.Config.GresTypes, gres.Name) {
			if near := spec.Nearest(gres.Name, b.file.Config.GresTypes); near != "" {
				b.problems.addProblem(
					draft.settingOf("Gres"),
					Error,
					"%s is not in GresTypes; did you mean %s?",
					gres.Name,
					near,
				)
			} else {
				b.problems.addProblem(draft.settingOf("Gres"), Error, "%s is not in GresTypes", gres.Name)
			}
		}
	}
}

// nodeShares checks what GPUs of a node are shared as.
func (b *builder) nodeShares(draft *nodeDraft) {
	gpus, name := int64(0), ""
	for _, gres := range draft.gres {
		if gres.Name == "gpu" {
			gpus += gres.N
		}
	}
	for _, gres := range draft.gres {
		switch {
		case !spec.Shares(gres.Name):
			continue
		case gpus == 0:
			b.problems.addProblem(
				draft.settingOf("Gres"),
				Error,
				"%s is a part of a GPU, and the node has none: write gpu:N,%s:%d",
				gres.Name,
				gres.Name,
				gres.N,
			)
		case gres.NoConsume:
			b.problems.addProblem(
				draft.settingOf("Gres"),
				Error,
				"%s: what of a GPU is shared is counted, so it cannot be no_consume",
				gres.Name,
			)
		case gres.N < gpus:
			b.problems.addProblem(
				draft.settingOf("Gres"),
				Error,
				"%s:%d is less than one for each of %d GPUs",
				gres.Name,
				gres.N,
				gpus,
			)
		case name != "" && name != gres.Name:
			b.problems.addProblem(
				draft.settingOf("Gres"),
				Error,
				"%s and %s: the GPUs of a node are shared in one way",
				name,
				gres.Name,
			)
		}
		name = gres.Name
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
		gres := spec.GRESSpec{Name: parts[0], N: 1}
		parts = parts[1:]
		if k := len(parts); k > 0 && parts[k-1] != "" && parts[k-1][0] >= '0' &&
			parts[k-1][0] <= '9' {
			n, err := format.ParseCount(parts[k-1])
			switch {
			case err == nil:
				gres.N, parts = n, parts[:k-1]
			case k > 1:
				v.failValue("%s: %s", quoteShort(item), err)
				continue
			}
		}
		for _, p := range parts {
			switch {
			case strings.EqualFold(p, "no_consume"):
				gres.NoConsume = true
			case gres.Type == "" && gresName(p):
				gres.Type = p
			default:
				v.failValue("%s: expected name[:type][:count]", quoteShort(item))
			}
		}
		if !gresName(gres.Name) {
			v.failValue("%s: expected name[:type][:count]", quoteShort(item))
			continue
		}
		if slices.ContainsFunc(
			out,
			func(o spec.GRESSpec) bool { return o.Name == gres.Name && o.Type == gres.Type },
		) {
			v.failValue("%s is named twice", quoteShort(body))
			continue
		}
		out = append(out, gres)
	}
	return out
}

// gresItems splits at commas outside of parentheses.
func gresItems(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, text[from:i]), i+1
			}
		}
	}
	out = append(out, text[from:])
	return slices.DeleteFunc(out, func(p string) bool { return p == "" })
}

// applyDown marks nodes as a DownNodes record says.
func (b *builder) applyDown(draft downDraft, at map[string]int) {
	names, err := hostlist.Expand(draft.nodes)
	if err != nil {
		b.problems.addProblem(draft.at, Error, "%s", err)
		return
	}
	var unknown []string
	for _, name := range names {
		k, ok := at[name]
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		node := &b.file.Config.Nodes[k]
		node.State, node.Reason = draft.state, draft.reason
		if node.State == "FAILING" {
			node.State = "FAIL"
		}
	}
	b.unknownNodes(draft.at, unknown)
}

func (b *builder) unknownNodes(setting Setting, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	known := make([]string, len(b.file.Config.Nodes), len(b.file.Config.Nodes)+len(b.sets))
	for i := range known {
		known[i] = b.file.Config.Nodes[i].Name
	}
	for _, draft := range b.sets {
		known = append(known, draft.name)
	}
	hint := ""
	if near := spec.Nearest(unknown[0], known); near != "" && len(unknown) == 1 {
		hint = "; did you mean " + near + "?"
	}
	b.problems.addProblem(
		setting,
		Error,
		"no NodeName record has %s%s",
		shorten(hostlist.Fold(unknown)),
		hint,
	)
}

func shorten(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}

// expandDevices expands File= of gres.conf: absolute paths with ranges in the last
// part, such as /dev/nvidia[0-7],/dev/nvidia9.
func expandDevices(expr string) ([]string, string) {
	var out []string
	for _, item := range outsideBrackets(expr) {
		dir, base := path.Split(item)
		if !strings.HasPrefix(dir, "/") ||
			path.Clean(dir) != strings.TrimSuffix(dir, "/") && dir != "/" {
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
func outsideBrackets(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, text[from:i]), i+1
			}
		}
	}
	return append(out, text[from:])
}
