package wire

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// together adds up entries of the same name and type: a resource that several
// lines of gres.conf describe.
func together(list []spec.GRESSpec) []spec.GRESSpec {
	var out []spec.GRESSpec
next:
	for _, g := range list {
		for i := range out {
			if out[i].Name == g.Name && out[i].Type == g.Type {
				out[i].N += g.N
				continue next
			}
		}
		out = append(out, g)
	}
	return out
}

// GRESText writes declared GRES as Slurm does: gpu:h100:8,nic:1.
func GRESText(list []spec.GRESSpec) string {
	var parts []string
	for _, g := range together(list) {
		text := typed(g.Name, g.Type)
		if g.NoConsume {
			text += ":no_consume"
		}
		parts = append(parts, text+":"+format.Count(g.N))
	}
	return strings.Join(parts, ",")
}

func typed(name, typ string) string {
	if typ == "" {
		return name
	}
	return name + ":" + typ
}

// gresUsed writes GRES in use as Slurm does: gpu:h100:2(IDX:0-1); of what GPUs
// are shared in, how much of each is: shard:5(4/8,1/8).
func gresUsed(n *state.Node) string {
	var parts []string
	for _, g := range together(n.Spec.GRES) {
		switch {
		case g.Name == "gpu":
			var idx spec.Bitset
			for i := range n.GPUs {
				if n.UsedGPU.Has(i) && (g.Type == "" || n.GPUs[i].Type == g.Type) {
					idx = idx.Set(int(n.GPUs[i].Index))
				}
			}
			parts = append(parts, fmt.Sprintf("%s:%d(IDX:%s)", typed("gpu", g.Type), idx.Count(), Indices(idx)))
		case spec.Shares(g.Name) && n.Shares != nil:
			parts = append(parts, typed(g.Name, g.Type)+sharesUsed(n, g.Name, g.Type))
		default:
			used := int64(0)
			for _, u := range n.UsedGRES {
				if u.Name == g.Name && u.Type == g.Type {
					used = u.N
				}
			}
			parts = append(parts, g.Name+":"+format.Count(used))
		}
	}
	return strings.Join(parts, ",")
}

// sharesUsed writes what is held of each device that can be shared.
func sharesUsed(n *state.Node, name, typ string) string {
	var sum int64
	var each []string
	for i := range n.GPUs {
		if s := n.ShareAt(i); s.Name == name && (typ == "" || typ == n.GPUs[i].Type) {
			sum += n.ShareUsed(i)
			each = append(each, format.Count(n.ShareUsed(i))+"/"+format.Count(s.N))
		}
	}
	return ":" + format.Count(sum) + "(" + strings.Join(each, ",") + ")"
}
