package local

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/sim/replay"
)

// packing is a parsed command line of simulate --openb.
type packing struct {
	shuffles, inflate int64
	mix               bool
	// With run times of a trace the pods leave again.
	runs              string // file of --itp; empty: they stay
	pods, nodes, load int64
}

func newPacking(call *tool.Call) (*packing, error) {
	wrong := func(format string, args ...any) error {
		return &opt.UsageError{Command: "muster simulate", Text: fmt.Sprintf(format, args...)}
	}
	if len(call.Operands) > 0 {
		return nil, wrong("unexpected argument %s", call.Operands[0])
	}
	for _, name := range []string{"swf", "graham", "procs", "cpus", "gpus", "policy", "exact", "out"} {
		if call.Opts.On(name) {
			return nil, wrong("--%s does not go with --openb", name)
		}
	}
	p := &packing{shuffles: 10, inflate: 130, pods: 20_000, load: 100}
	p.runs = call.Opts.Text("itp")
	if p.runs == "" {
		for _, name := range []string{"load", "pods", "nodes", "cluster"} {
			if call.Opts.On(name) {
				return nil, wrong("--%s needs pods that leave: name a trace of run times with --itp", name)
			}
		}
	} else if call.Opts.On("inflate") {
		return nil, wrong("--inflate fills a cluster in which no job ends: with --itp say --load")
	}
	for _, number := range []struct {
		name string
		to   *int64
		most int64
	}{
		{"shuffles", &p.shuffles, 1000},
		{"inflate", &p.inflate, 1000},
		{"load", &p.load, 1000},
		{"pods", &p.pods, 10_000_000},
		{"nodes", &p.nodes, 1 << 24},
	} {
		if !call.Opts.On(number.name) {
			continue
		}
		text := call.Opts.Text(number.name)
		n, ok := tool.PositiveNumber(text)
		if !ok || n < 1 || n > number.most {
			return nil, wrong("--%s=%s: expected a number from 1 to %d", number.name, text, number.most)
		}
		*number.to = n
	}
	switch text := cmp.Or(call.Opts.Text("packing"), "mix"); text {
	case "mix":
		p.mix = true
	case "best-fit":
	default:
		return nil, wrong("--packing=%s: mix or best-fit", text)
	}
	return p, nil
}

// packOpenb is simulate --openb.
func packOpenb(call *tool.Call) error {
	p, err := newPacking(call)
	if err != nil {
		return err
	}
	openb, err := readOpenb(resolvePath(call, call.Opts.Text("openb")))
	if err != nil {
		return call.Errorf("%v", err)
	}
	if p.runs != "" {
		return churnOpenb(call, p, openb)
	}
	began, asTree := call.Now(), render.WantsDocument(call)
	told := newProgress(call, began, "orders are packed")
	var rows tree.List
	var sum int64
	for seed := int64(1); seed <= p.shuffles && call.Ctx.Err() == nil; seed++ {
		packed, err := openb.Pack(uint64(seed), p.inflate, p.mix)
		if err != nil {
			return call.Errorf("%v", err)
		}
		part := packed.Alloc * 100_000 / packed.Capacity
		sum += part
		rows = append(
			rows,
			tree.Object{
				{Key: "shuffle", Value: seed},
				{Key: "pods", Value: packed.Pods},
				{Key: "placed", Value: packed.Placed},
				{Key: "gpus_allocated_percent", Value: float64(part) / 1000},
			},
		)
		if asTree {
			told(int(seed), int(p.shuffles), 0)
			continue
		}
		fmt.Fprintf(
			call.Out,
			"order %-3d %d of %d pods placed, %s of %d GPUs allocated\n",
			seed,
			packed.Placed,
			packed.Pods,
			thousandth(part),
			packed.Capacity/1000,
		)
		if err := call.Out.Flush(); err != nil { // the next one takes its time
			return err
		}
	}
	if err := call.Ctx.Err(); err != nil {
		return err
	}
	mean := sum / p.shuffles
	took := call.Now().Sub(began).Seconds()
	if asTree {
		progressOver(call)
		return render.PrintOffline(
			call,
			tree.Object{
				{Key: "shuffles", Value: rows},
				{Key: "mean_gpus_allocated_percent", Value: float64(mean) / 1000},
				{Key: "seconds", Value: took},
			},
		)
	}
	fmt.Fprintf(
		call.Out,
		"mean      %s of the GPUs allocated by %s (%d orders, %.0f s)\n",
		thousandth(mean),
		p.spellPacking(),
		p.shuffles,
		took,
	)
	return nil
}

// spellPacking is what --packing calls it.
func (p *packing) spellPacking() string {
	if p.mix {
		return "mix"
	}
	return "best-fit"
}

// thousandth writes thousandths of a percent: 95.481 %.
func thousandth(n int64) string { return fmt.Sprintf("%d.%03d %%", n/1000, n%1000) }

func readOpenb(folder string) (*replay.Openb, error) {
	nodes, closeNodes, err := openEither(filepath.Join(folder, "openb_node_list_all_node.csv"))
	if err != nil {
		return nil, err
	}
	defer closeNodes()
	pods, closePods, err := openEither(filepath.Join(folder, "openb_pod_list_default.csv"))
	if err != nil {
		return nil, err
	}
	defer closePods()
	return replay.ReadOpenb(nodes, pods)
}

// openEither opens a file, or the same one compressed.
func openEither(name string) (io.Reader, func() error, error) {
	f, err := os.Open(name)
	if err == nil {
		return f, f.Close, nil
	}
	z, zerr := os.Open(name + ".gz")
	if errors.Is(zerr, fs.ErrNotExist) {
		return nil, nil, err
	}
	if zerr != nil {
		return nil, nil, zerr
	}
	r, err := gzip.NewReader(z)
	if err != nil {
		return nil, nil, errors.Join(err, z.Close())
	}
	return r, z.Close, nil
}
