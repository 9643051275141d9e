package host

import (
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
)

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

const mountstats = `device tmpfs mounted on /run with fstype tmpfs
device filer:/home mounted on /home with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2
	age:	1234
	bytes:	9000 8000 0 0 7000 6000 10 20
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
device filer:/home mounted on /mnt/home with fstype nfs4 statvers=1.1
	bytes:	9000 8000 0 0 7000 6000 10 20
device filer:/scratch mounted on /scratch with fstype nfs statvers=1.1
	bytes:	1 2 3 4 50 60 7 8
device proc mounted on /proc with fstype proc
	bytes:	1 1 1 1 1 1 1 1
`

// As a node of a cluster with two adapters, Lustre and NFS has them.
func TestReadCounters(t *testing.T) {
	sys := fstest.MapFS{
		"class/infiniband/mlx5_0/ports/1/counters/port_rcv_data":  text("1000\n"),
		"class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": text("2000\n"),
		"class/infiniband/mlx5_1/ports/1/counters/port_rcv_data":  text("10\n"),
		"class/infiniband/mlx5_1/ports/1/counters/port_xmit_data": text("20\n"),
		"class/infiniband/mlx5_1/ports/2/counters/port_rcv_data":  text("7\n"),
		"class/infiniband/mlx5_1/ports/2/counters/port_xmit_data": text("9\n"),
		"class/net/hsn0/statistics/rx_bytes":                      text("500\n"),
		"class/net/hsn0/statistics/tx_bytes":                      text("600\n"),
		"kernel/debug/lustre/llite/scratch-ffff8/stats": text("snapshot_time             1700000000.123456789 secs.nsecs\n" +
			"read_bytes                12 samples [bytes] 4096 1048576 7340032 999\nwrite_bytes               3 samples [bytes] 1 4 9\nopen                      5 samples [usecs]\n"),
		"kernel/debug/lustre/llite/home-ffff9/stats": text("snapshot_time             1700000000.1 secs.nsecs\n"),
	}
	proc := fstest.MapFS{
		"self/mountstats":               text(mountstats),
		"fs/lustre/llite/scratch/stats": text("snapshot_time 1\nread_bytes 1 samples [bytes] 1 1 1\n"), // the same mount, by the older way
	}
	all := spec.CounterValues{
		{Counter: spec.CounterFabricIn, N: 4 * 1017}, {Counter: spec.CounterFabricOut, N: 4 * 2029},
		{Counter: spec.CounterLustreRead, N: 7340032}, {Counter: spec.CounterLustreWrite, N: 9},
		{Counter: spec.CounterNFSRead, N: 7050}, {Counter: spec.CounterNFSWrite, N: 6060},
	}
	for _, c := range []struct {
		name    string
		sys     fstest.MapFS
		proc    fstest.MapFS
		options CounterOptions
		want    spec.CounterValues
	}{
		{"everything", sys, proc, CounterOptions{}, all},
		{"one port", sys, proc, CounterOptions{Port: 2, NoFilesystems: true}, spec.CounterValues{{Counter: spec.CounterFabricIn, N: 28}, {Counter: spec.CounterFabricOut, N: 36}}},
		{"interfaces as well", sys, proc, CounterOptions{Port: 2, Interfaces: []string{"hsn0", "gone0"}, NoFilesystems: true},
			spec.CounterValues{{Counter: spec.CounterFabricIn, N: 528}, {Counter: spec.CounterFabricOut, N: 636}}},
		{"no fabric", sys, proc, CounterOptions{NoFabric: true}, all[2:]},
		{"older Lustre", fstest.MapFS{}, proc, CounterOptions{}, spec.CounterValues{{Counter: spec.CounterLustreRead, N: 1}, {Counter: spec.CounterLustreWrite, N: 0},
			{Counter: spec.CounterNFSRead, N: 7050}, {Counter: spec.CounterNFSWrite, N: 6060}}},
		{"nothing of all that", fstest.MapFS{"class/net/lo/mtu": text("1")}, fstest.MapFS{"self/mountstats": text("device tmpfs mounted on /run with fstype tmpfs\n")}, CounterOptions{}, nil},
	} {
		got := ReadCounters(Source{Sys: c.sys, Proc: c.proc}, &c.options)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}
	}
}

func FuzzMountstats(f *testing.F) {
	f.Add(mountstats)
	f.Add("device a mounted on b with fstype nfs x\nbytes: 1 2 3 4 5 6\n")
	f.Fuzz(func(t *testing.T, s string) {
		if got := parseMountstats(s); !got.known && got != (traffic{}) {
			t.Errorf("%+v", got)
		}
		parseLlite(s)
	})
}
