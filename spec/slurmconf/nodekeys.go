package slurmconf

import "github.com/musterhpc/muster/spec"

// nodeDraft is a NodeName record before it becomes nodes. DEFAULT records are
// drafts that later ones start from, so slices here are replaced, never changed.
type nodeDraft struct {
	spec.NodeSpec
	at              Setting
	hosts, addrs    string
	ports           string
	socketsPerBoard int64
	gres            []spec.GRESSpec
	cpus            int64 // 0 = not given
}

func nodeKeys() []key[nodeDraft] {
	num := func(to func(*nodeDraft) *int64) func(*nodeDraft, value) {
		return func(draft *nodeDraft, v value) {
			if n, ok := v.parseInteger(1, 1<<20); ok {
				*to(draft) = n
			}
		}
	}
	mib := func(to func(*nodeDraft) *int64) func(*nodeDraft, value) { return setMemory(to) }
	features := func(d *nodeDraft, v value) { d.Features = v.splitItems() }
	return []key[nodeDraft]{
		{"NodeName", implemented, "", "", func(d *nodeDraft, v value) { d.at, d.Name = v.Setting, v.Value }},
		{"BcastAddr", unsupported, "", "sbcast reaches nodes at the addresses of their agents", nil},
		{"Boards", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.Boards })},
		{"CPUs", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.cpus })},
		{"CPUSpecList", implemented, "", "", func(draft *nodeDraft, v value) {
			set, ok := spec.ParseRanges(v.Value, 1<<20)
			if !ok || set.Empty() {
				v.failValue("%s are no CPUs: want their numbers, such as 0,8 or 0-3", quoteShort(v.Value))
				return
			}
			draft.Reserved = set
		}},
		{"CoreSpecCount", implemented, "", "", func(draft *nodeDraft, v value) {
			if n, ok := v.parseInteger(0, 1<<20); ok {
				draft.CoreSpecCount = n
			}
		}},
		{"CoresPerSocket", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.CoresPerSocket })},
		{"CpuBind", unsupported, "none", "tasks are bound to the cores of their job only", nil},
		{"Feature", implemented, "", "", features},
		{"Features", implemented, "", "", features},
		{"Gres", implemented, "", "", func(d *nodeDraft, v value) { d.gres = parseGres(v) }},
		{"GresConf", unsupported, "", "write the resources of an added node into Gres, and its devices into gres.conf", nil},
		{"MemSpecLimit", implemented, "", "", mib(func(d *nodeDraft) *int64 { return &d.MemSpecLimit })},
		{"NodeAddr", implemented, "", "", setText(func(d *nodeDraft) *string { return &d.addrs })},
		{"NodeHostname", implemented, "", "", setText(func(d *nodeDraft) *string { return &d.hosts })},
		{"Parameters", unsupported, "", "nodes have no parameters", nil},
		{"Port", implemented, "", "", setText(func(d *nodeDraft) *string { return &d.ports })},
		{"Procs", implemented, "", "", func(draft *nodeDraft, v value) {
			v.noteValue("old name of CPUs")
			if n, ok := v.parseInteger(1, 1<<20); ok {
				draft.cpus = n
			}
		}},
		{"RealMemory", implemented, "", "", mib(func(d *nodeDraft) *int64 { return &d.Mem })},
		{"Reason", implemented, "", "", setText(func(d *nodeDraft) *string { return &d.Reason })},
		{"RestrictedCoresPerGPU", unsupported, "0", "jobs without GPUs may take all cores", nil},
		{"Sockets", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.Sockets })},
		{"SocketsPerBoard", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.socketsPerBoard })},
		{"State", implemented, "", "", setNodeState},
		{"SuspendTime", implemented, "", "", idleTime(func(d *nodeDraft) *spec.Span { return &d.SuspendTime }, spec.Infinite)},
		{"ThreadsPerCore", implemented, "", "", num(func(d *nodeDraft) *int64 { return &d.ThreadsPerCore })},
		{"TmpDisk", implemented, "", "", mib(func(d *nodeDraft) *int64 { return &d.TmpDisk })},
		{"Topology", unsupported, "", "the place of a node in the network is set in topology.conf", nil},
		{"Weight", implemented, "", "", func(draft *nodeDraft, v value) {
			if n, ok := v.parseInteger(0, 1<<31); ok {
				draft.Weight = uint32(n)
			}
		}},
	}
}

func setNodeState(draft *nodeDraft, v value) {
	if text, ok := v.parseWord("UNKNOWN|IDLE|DOWN|DRAIN|FAIL|FAILING|FUTURE|CLOUD|EXTERNAL"); ok {
		switch text {
		case "UNKNOWN", "IDLE":
			draft.State = ""
		case "FAILING":
			draft.State = "FAIL"
		case "EXTERNAL":
			v.failValue("EXTERNAL nodes are not supported: every node runs an agent")
		default:
			draft.State = text
		}
	}
}

// downDraft is a DownNodes record.
type downDraft struct {
	at            Setting
	nodes, reason string
	state         string
}

func downKeys() []key[downDraft] {
	return []key[downDraft]{
		{
			"DownNodes",
			implemented,
			"",
			"",
			func(d *downDraft, v value) { d.at, d.nodes = v.Setting, v.Value },
		},
		{"Reason", implemented, "", "", setText(func(d *downDraft) *string { return &d.reason })},
		{
			"State",
			implemented,
			"",
			"",
			oneOf("DOWN|DRAIN|FAIL|FAILING|FUTURE", func(d *downDraft) *string { return &d.state }),
		},
	}
}

// setDraft is a NodeSet record.
type setDraft struct {
	at                   Setting
	name, feature, nodes string
}

func setKeys() []key[setDraft] {
	return []key[setDraft]{
		{
			"NodeSet",
			implemented,
			"",
			"",
			func(d *setDraft, v value) { d.at, d.name = v.Setting, v.Value },
		},
		{"Feature", implemented, "", "", setText(func(d *setDraft) *string { return &d.feature })},
		{"Nodes", implemented, "", "", setText(func(d *setDraft) *string { return &d.nodes })},
	}
}
