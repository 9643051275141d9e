package acct

import (
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// traffic is one way by which a run moved data, in both directions.
type traffic struct {
	label   string
	in, out spec.Counter
	inVerb  string
	outVerb string
}

// trafficOf lists the ways by which a run moves data that are counted.
func trafficOf() []traffic {
	return []traffic{
		{label: "Network", in: spec.CounterNetIn, out: spec.CounterNetOut, inVerb: "received", outVerb: "sent"},
		{label: "Fabric", in: spec.CounterFabricIn, out: spec.CounterFabricOut, inVerb: "received", outVerb: "sent"},
		{label: "Lustre", in: spec.CounterLustreRead, out: spec.CounterLustreWrite, inVerb: "read", outVerb: "written"},
		{label: "NFS", in: spec.CounterNFSRead, out: spec.CounterNFSWrite, inVerb: "read", outVerb: "written"},
	}
}

// movedPart shows what the processes of a run moved and what held them up. What was not
// counted is left out: it is not zero.
func movedPart(usage *apiv1.Usage) part {
	out := part{heading: "I/O and waiting"}
	add := func(label string, parts ...string) {
		if len(parts) > 0 {
			out.pairs = append(out.pairs, [2]string{label, strings.Join(parts, ", ")})
		}
	}
	for _, way := range trafficOf() {
		var parts []string
		for _, direction := range []struct {
			counter spec.Counter
			verb    string
		}{{way.in, way.inVerb}, {way.out, way.outVerb}} {
			if n, ok := counted(usage, direction.counter); ok {
				parts = append(parts, bytesText(n)+" "+direction.verb)
			}
		}
		add(way.label, parts...)
	}
	add("Local disks", diskParts(usage)...)
	faults := []string{fmt.Sprintf("%d major", usage.GetMajFaults())}
	if n, ok := counted(usage, spec.CounterMinFaults); ok {
		faults = append(faults, fmt.Sprintf("%d minor", n))
	}
	add("Page faults", faults...)
	var switches []string
	for _, kind := range []struct {
		counter spec.Counter
		text    string
	}{{spec.CounterVolSwitches, "voluntary"}, {spec.CounterInvSwitches, "involuntary"}} {
		if n, ok := counted(usage, kind.counter); ok {
			switches = append(switches, fmt.Sprintf("%d %s", n, kind.text))
		}
	}
	add("Context switches", switches...)
	var stalls []string
	for _, kind := range []struct {
		counter spec.Counter
		text    string
	}{
		{spec.CounterCPUStall, "for a CPU"}, {spec.CounterMemStall, "for memory"},
		{spec.CounterIOStall, "for a disk"}, {spec.CounterThrottled, "throttled by a limit of CPU time"},
	} {
		if n, ok := counted(usage, kind.counter); ok {
			stalls = append(stalls, microsText(n)+" "+kind.text)
		}
	}
	add("Stalled", stalls...)
	return out
}

// diskParts are the bytes and the requests of local disks.
func diskParts(usage *apiv1.Usage) []string {
	var out []string
	for _, direction := range []struct {
		bytes   int64
		counter spec.Counter
		verb    string
	}{
		{usage.GetReadBytes(), spec.CounterReadOps, "read"},
		{usage.GetWriteBytes(), spec.CounterWriteOps, "written"},
	} {
		text := bytesText(direction.bytes) + " " + direction.verb
		if n, ok := counted(usage, direction.counter); ok {
			text += fmt.Sprintf(" in %d requests", n)
		}
		out = append(out, text)
	}
	return out
}

// bytesText is a number of bytes in the unit that fits it.
func bytesText(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		value /= step
		if value < step {
			return fmt.Sprintf("%.1f %s", value, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", value/step)
}

// microsText is a time in microseconds, to the millisecond.
func microsText(n int64) string {
	return (time.Duration(n) * time.Microsecond).Round(time.Millisecond).String()
}

// countersTree is the same as data: bytes, microseconds and numbers, by the names of
// views.
func countersTree(usage *apiv1.Usage) tree.Object {
	object := tree.Object{
		{Key: "read_bytes", Value: usage.GetReadBytes()},
		{Key: "write_bytes", Value: usage.GetWriteBytes()},
		{Key: "maj_faults", Value: usage.GetMajFaults()},
	}
	for _, counter := range spec.Counters() {
		var value any
		if n, ok := counted(usage, counter.Counter); ok {
			value = n
		}
		object = append(object, tree.Member{Key: counter.Name, Value: value})
	}
	return object
}
