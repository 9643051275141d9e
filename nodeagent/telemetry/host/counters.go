package host

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// CounterOptions choose what ReadCounters reads.
type CounterOptions struct {
	NoFabric      bool
	NoFilesystems bool
	Port          uint32   // the port of each adapter that counts; 0 = all
	Interfaces    []string // of the network, that count as the fabric too
}

// ReadCounters reads what only the node as a whole counts: the ports of its fabric
// and its clients of shared file systems. What it does not have is missing.
func ReadCounters(src Source, options *CounterOptions) spec.CounterValues {
	var values spec.CounterValues
	put := func(in, out2 spec.Counter, t traffic) {
		if t.known {
			values = values.With(in, t.in).With(out2, t.out)
		}
	}
	if !options.NoFabric {
		ports := readPorts(src.Sys, options.Port)
		ports.add(readInterfaces(src.Sys, options.Interfaces))
		put(spec.CounterFabricIn, spec.CounterFabricOut, ports)
	}
	if !options.NoFilesystems {
		put(spec.CounterLustreRead, spec.CounterLustreWrite, readLustre(src))
		put(spec.CounterNFSRead, spec.CounterNFSWrite, readNFS(src.Proc))
	}
	return values
}

// traffic is bytes in two directions; known tells that something counts them.
type traffic struct {
	in, out int64
	known   bool
}

func (t *traffic) add(more traffic) {
	t.in += more.in
	t.out += more.out
	t.known = t.known || more.known
}

// wordBytes is what one unit of a port's data counters stands for.
const wordBytes = 4

// readPorts adds up the ports of InfiniBand and RoCE adapters.
func readPorts(sys fs.FS, only uint32) (sum traffic) {
	ports, err := fs.Glob(sys, "class/infiniband/*/ports/*")
	if err != nil {
		return traffic{}
	}
	for _, port := range ports {
		if only != 0 && path.Base(port) != strconv.FormatUint(uint64(only), 10) {
			continue
		}
		in, err1 := counter(sys, path.Join(port, "counters/port_rcv_data"))
		out, err2 := counter(sys, path.Join(port, "counters/port_xmit_data"))
		if err1 != nil || err2 != nil {
			continue
		}
		sum.add(traffic{in: in * wordBytes, out: out * wordBytes, known: true})
	}
	return sum
}

func readInterfaces(sys fs.FS, names []string) (sum traffic) {
	for _, name := range names {
		dir := path.Join("class/net", name, "statistics")
		in, err1 := counter(sys, path.Join(dir, "rx_bytes"))
		out, err2 := counter(sys, path.Join(dir, "tx_bytes"))
		if err1 == nil && err2 == nil {
			sum.add(traffic{in: in, out: out, known: true})
		}
	}
	return sum
}

// counter reads a number that fits when it is multiplied.
func counter(fsys fs.FS, name string) (int64, error) {
	text, err := readText(fsys, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return int64(n & (1<<60 - 1)), err
}

// readLustre adds up the mounts of Lustre: below debugfs, or /proc of older releases.
func readLustre(src Source) (sum traffic) {
	for _, place := range []struct {
		fsys fs.FS
		glob string
	}{{src.Sys, "kernel/debug/lustre/llite/*/stats"}, {src.Proc, "fs/lustre/llite/*/stats"}} {
		files, err := fs.Glob(place.fsys, place.glob)
		if err != nil || len(files) == 0 {
			continue
		}
		for _, file := range files {
			if text, err := readText(place.fsys, file); err == nil {
				sum.add(parseLlite(text))
			}
		}
		return sum
	}
	return sum
}

// parseLlite reads the statistics of one mount: "read_bytes 12 samples [bytes] MIN MAX
// SUM". A mount that has not read yet has no such line.
func parseLlite(text string) traffic {
	sum := traffic{known: strings.Contains(text, "snapshot_time")}
	const sumField = 6
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) <= sumField || fields[3] != "[bytes]" {
			continue
		}
		n, err := strconv.ParseInt(fields[sumField], 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch fields[0] {
		case "read_bytes":
			sum.in += n
		case "write_bytes":
			sum.out += n
		}
	}
	return sum
}

// readNFS adds up the mounts of NFS: bytes that went over the network, not those that
// the page cache answered.
func readNFS(proc fs.FS) traffic {
	text, err := readText(proc, "self/mountstats")
	if err != nil {
		return traffic{}
	}
	return parseMountstats(text)
}

// parseMountstats reads /proc/self/mountstats. One file system that is mounted in
// several places shows the same counters in each, and is counted once.
func parseMountstats(text string) (sum traffic) {
	var seen []string
	device := ""
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 7 && fields[0] == "device" && strings.HasPrefix(fields[7], "nfs"):
			device = fields[1]
		case len(fields) > 1 && fields[0] == "device":
			device = ""
		case device != "" && len(fields) > 6 && fields[0] == "bytes:":
			same := device + " " + strings.Join(fields, " ")
			if slices.Contains(seen, same) {
				continue
			}
			seen = append(seen, same)
			in, err1 := strconv.ParseInt(fields[5], 10, 64)
			out, err2 := strconv.ParseInt(fields[6], 10, 64)
			if err1 == nil && err2 == nil && in >= 0 && out >= 0 {
				sum.add(traffic{in: in, out: out, known: true})
			}
		}
	}
	return sum
}
