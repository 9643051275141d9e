package daemon

import (
	"context"
	"fmt"
	"math/big"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// reportNamespaces answers muster report namespaces, and namespace NAME: what jobs and pods held.
// The lines add up to the last one, which is the total: thousandths of hours are given out by the
// largest remainders. The lines of one namespace add up to what namespaces says of it: each of
// those lines is rounded first, and then given out among its pods.
func (r *report) reportNamespaces(ctx context.Context) error {
	one := r.q.GetBy()
	if a := &r.ask; len(a.Nodes) > 0 || one != "" && len(a.Jobs) > 0 {
		return spec.Refuse(spec.CodeBadRequest, "the report of namespaces is over all nodes and jobs: leave them out")
	}
	if one != "" { // it names pods
		private, err := r.s.D.private(ctx, r.scope, privateJobs)
		if err != nil {
			return r.s.D.storeAway(err)
		}
		if private {
			return spec.Refuse(spec.CodeAccessDenied, "PrivateData=jobs: only operators see the pods of a namespace")
		}
	}
	r.addColumns([3]string{"Namespace", "text"}, [3]string{"Kind", "text"}, [3]string{"Name", "text"}, [3]string{"Account", "text"},
		[3]string{"Runs", "int"}, [3]string{"GPU-hours", "text"}, [3]string{"CPU-hours", "text"})
	var groups []*namespaceGroup
	err := r.runQuery(ctx, r.ask.Namespaces(r.scope, one), func(scan func(...any) error) error {
		var space, kind, name, account, gpuText, cpuText string
		var n int64
		if err := scan(&space, &kind, &name, &account, &n, &gpuText, &cpuText); err != nil {
			return err
		}
		gpu, ok := new(big.Int).SetString(gpuText, 10)
		cpu, too := new(big.Int).SetString(cpuText, 10)
		if !ok || !too {
			return fmt.Errorf("the store answers %q and %q where numbers are expected", gpuText, cpuText)
		}
		last := len(groups) - 1
		if last < 0 || !groups[last].has(space, kind, account) {
			groups = append(groups, &namespaceGroup{space: space, kind: kind, account: account})
			last++
		}
		groups[last].add(name, n, gpu, cpu)
		return nil
	})
	if err != nil {
		return err
	}
	r.addNamespaces(groups, one)
	return nil
}

// addNamespaces adds the rows: one of each group, or with one namespace one of each of its pods.
func (r *report) addNamespaces(groups []*namespaceGroup, one string) {
	const milliHour = 3_600_000 // microseconds
	gpuScale := big.NewInt(milliHour)
	cpuScale := big.NewInt(1000 * milliHour) // CPUs are in thousandths too
	var gpus, cpus []*big.Int
	for _, g := range groups {
		gpus = append(gpus, sumOf(g.gpus))
		cpus = append(cpus, sumOf(g.cpus))
	}
	gpuHours, _ := kpi.Apportion(gpus, gpuScale)
	cpuHours, _ := kpi.Apportion(cpus, cpuScale)
	runs := int64(0)
	gpuTotal, cpuTotal := new(big.Int), new(big.Int)
	for i, g := range groups {
		if one != "" && g.space != one {
			continue
		}
		gpuTotal.Add(gpuTotal, gpuHours[i])
		cpuTotal.Add(cpuTotal, cpuHours[i])
		gpuParts := kpi.ApportionTotal(g.gpus, gpuScale, gpuHours[i])
		cpuParts := kpi.ApportionTotal(g.cpus, cpuScale, cpuHours[i])
		for j, name := range g.names {
			runs += g.runs[j]
			r.addRow(g.space, g.kind, name, g.account, g.runs[j], thousandths(gpuParts[j]), thousandths(cpuParts[j]))
		}
	}
	if runs > 0 {
		r.addRow("total", "", "", "", runs, thousandths(gpuTotal), thousandths(cpuTotal))
	}
}

// namespaceGroup is a line of muster report namespaces with what it consists of: one part of
// all, or the pods of a namespace that was named.
type namespaceGroup struct {
	space, kind, account string

	names      []string
	runs       []int64
	gpus, cpus []*big.Int // microseconds of GPUs, and of thousandths of CPUs
}

func (g *namespaceGroup) has(space, kind, account string) bool {
	return g.space == space && g.kind == kind && g.account == account
}

func (g *namespaceGroup) add(name string, runs int64, gpus, cpus *big.Int) {
	g.names = append(g.names, name)
	g.runs = append(g.runs, runs)
	g.gpus = append(g.gpus, gpus)
	g.cpus = append(g.cpus, cpus)
}

func sumOf(list []*big.Int) *big.Int {
	sum := new(big.Int)
	for _, n := range list {
		sum.Add(sum, n)
	}
	return sum
}

// thousandths writes a number of them.
func thousandths(n *big.Int) string {
	whole, rest := new(big.Int).DivMod(n, big.NewInt(1000), new(big.Int))
	return fmt.Sprintf("%d.%03d", whole, rest)
}
