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
	for _, gres := range list {
		for i := range out {
			if out[i].Name == gres.Name && out[i].Type == gres.Type {
				out[i].N += gres.N
				continue next
			}
		}
		out = append(out, gres)
	}
	return out
}

// GRESText writes declared GRES as Slurm does: gpu:h100:8,nic:1.
func GRESText(list []spec.GRESSpec) string {
	var parts []string
	for _, gres := range together(list) {
		text := typed(gres.Name, gres.Type)
		if gres.NoConsume {
			text += ":no_consume"
		}
		parts = append(parts, text+":"+format.Count(gres.N))
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
func gresUsed(node *state.Node) string {
	var parts []string
	for _, gres := range together(node.Spec.GRES) {
		switch {
		case gres.Name == "gpu":
			var idx spec.Bitset
			for i := range node.GPUs {
				if node.UsedGPU.Has(i) && (gres.Type == "" || node.GPUs[i].Type == gres.Type) {
					idx = idx.Set(int(node.GPUs[i].Index))
				}
			}
			parts = append(
				parts,
				fmt.Sprintf("%s:%d(IDX:%s)", typed("gpu", gres.Type), idx.Count(), Indices(idx)),
			)
		case spec.Shares(gres.Name) && node.Shares != nil:
			parts = append(
				parts,
				typed(gres.Name, gres.Type)+sharesUsed(node, gres.Name, gres.Type),
			)
		default:
			used := int64(0)
			for _, u := range node.UsedGRES {
				if u.Name == gres.Name && u.Type == gres.Type {
					used = u.N
				}
			}
			parts = append(parts, gres.Name+":"+format.Count(used))
		}
	}
	return strings.Join(parts, ",")
}

// sharesUsed writes what is held of each device that can be shared.
func sharesUsed(node *state.Node, name, typ string) string {
	var sum int64
	var each []string
	for i := range node.GPUs {
		if shares := node.ShareAt(i); shares.Name == name &&
			(typ == "" || typ == node.GPUs[i].Type) {
			sum += node.ShareUsed(i)
			each = append(each, format.Count(node.ShareUsed(i))+"/"+format.Count(shares.N))
		}
	}
	return ":" + format.Count(sum) + "(" + strings.Join(each, ",") + ")"
}
