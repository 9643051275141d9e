package pmi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"pgregory.net/rapid"
)

// node is one node's server with what its tasks were sent.
type node struct {
	*Server
	t    testing.TB
	sent map[int]string
}

func newNode(t testing.TB, cfg plan.PMI) *node {
	return &node{Server: New(cfg), t: t, sent: map[int]string{}}
}

// say sends a message of a task and gives what followed.
func (n *node) say(task int, text string) Result {
	n.t.Helper()
	res, err := n.Read(task, []byte(text))
	if err != nil {
		n.t.Fatalf("task %d says %q: %v", task, text, err)
	}
	n.take(res)
	return res
}

func (n *node) take(res Result) {
	for _, a := range res.Answers {
		n.sent[a.Task] += string(a.Data)
	}
}

// heard gives what a task was sent since.
func (n *node) heard(task int) string {
	s := n.sent[task]
	n.sent[task] = ""
	return s
}

func two(cmd string, pairs ...string) string {
	return formatSecond(append([]string{"cmd", cmd}, pairs...)...)
}

func TestPMI1Conversation(t *testing.T) {
	n := newNode(t, plan.PMI{Job: "7.0", Size: 2, Nodes: 1, Mapping: "(vector,(0,1,2))", Ranks: []uint32{0, 1}})
	for task := range 2 {
		n.say(task, "cmd=init pmi_version=1 pmi_subversion=1\n")
		if got := n.heard(task); got != "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n" {
			t.Fatalf("%q", got)
		}
	}
	for _, c := range [][2]string{
		{"cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"},
		{"cmd=get_appnum", "cmd=appnum rc=0 appnum=0"},
		{"cmd=get_universe_size", "cmd=universe_size rc=0 size=2"},
		{"cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=7.0"},
		{"cmd=get kvsname=7.0 key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))"},
		{"cmd=put kvsname=7.0 key=card-0 value=host a=b c", "cmd=put_result rc=0 msg=success"},
		{"cmd=get kvsname=7.0 key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown"},
		{"cmd=publish_name service=a port=b", "cmd=publish_result rc=-1 msg=not_served"},
		{"mcmd=spawn\nnprocs=1\nexecname=x\nendcmd", "cmd=spawn_result rc=-1 msg=not_served"},
	} {
		n.say(0, c[0]+"\n")
		if got := n.heard(0); got != c[1]+"\n" {
			t.Errorf("%q is answered %q, want %q", c[0], got, c[1])
		}
	}
	if res := n.say(0, "cmd=barrier_in\n"); res.Reached || n.heard(0) != "" {
		t.Fatal("one of two passed the barrier")
	}
	res := n.say(1, "cmd=barrier_in\n")
	if !res.Reached || res.Number != 1 {
		t.Fatalf("%+v", res)
	}
	merged, err := n.Merged(1, res.Fence)
	if err != nil {
		t.Fatal(err)
	}
	n.take(merged)
	if a, b := n.heard(0), n.heard(1); a != "cmd=barrier_out rc=0\n" || b != a {
		t.Errorf("%q, %q", a, b)
	}
	n.say(1, "cmd=get kvsname=7.0 key=card-0\n")
	if got := n.heard(1); got != "cmd=get_result rc=0 msg=success value=host a=b c\n" {
		t.Errorf("%q", got)
	}
	if res := n.say(1, "cmd=abort exitcode=3\n"); !res.Abort || res.ExitCode != 3 {
		t.Errorf("%+v", res)
	}
	n.say(0, "cmd=finalize\n")
	if got := n.heard(0); got != "cmd=finalize_ack rc=0\n" {
		t.Errorf("%q", got)
	}
}

func TestPMI2Conversation(t *testing.T) {
	n := newNode(t, plan.PMI{Job: "7.0", Size: 2, Nodes: 1, Mapping: "(vector,(0,1,2))", Ranks: []uint32{4, 9}})
	for task := range 2 {
		n.say(task, "cmd=init pmi_version=2 pmi_subversion=0\n")
		if got := n.heard(task); got != "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n" {
			t.Fatalf("%q", got)
		}
	}
	n.say(1, two("fullinit", "pmijobid", "7.0", "pmirank", "9", "threaded", "FALSE"))
	if got := n.heard(1); !strings.Contains(got, "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=9;size=2;appnum=0;") {
		t.Errorf("%q", got)
	}
	n.say(0, two("kvs-put", "thrid", "12", "key", "a", "value", "x;y=z"))
	if got := n.heard(0); got != two("kvs-put-response", "thrid", "12", "rc", "0") {
		t.Errorf("%q", got)
	}
	// An attribute of the node is waited for until somebody puts it.
	n.say(1, two("info-getnodeattr", "key", "shm", "wait", "TRUE"))
	if got := n.heard(1); got != "" {
		t.Errorf("%q", got)
	}
	n.say(0, two("info-putnodeattr", "key", "shm", "value", "/dev/shm/1"))
	if got := n.heard(1); got != two("info-getnodeattr-response", "found", "TRUE", "value", "/dev/shm/1", "rc", "0") {
		t.Errorf("%q", got)
	}
	n.heard(0)
	n.say(0, two("info-getjobattr", "key", "PMI_process_mapping"))
	if got := n.heard(0); got != two("info-getjobattr-response", "found", "TRUE", "value", "(vector,(0,1,2))", "rc", "0") {
		t.Errorf("%q", got)
	}
	n.say(0, two("kvs-fence"))
	res := n.say(1, two("kvs-fence"))
	if !res.Reached {
		t.Fatal("the fence is not reached")
	}
	merged, err := n.Merged(res.Number, res.Fence)
	if err != nil {
		t.Fatal(err)
	}
	n.take(merged)
	n.heard(0)
	n.heard(1)
	n.say(1, two("kvs-get", "jobid", "7.0", "srcid", "-1", "key", "a"))
	if got := n.heard(1); got != two("kvs-get-response", "found", "TRUE", "value", "x;y=z", "rc", "0") {
		t.Errorf("%q", got)
	}
	n.say(1, two("spawn", "ncmds", "1"))
	if got := n.heard(1); !strings.Contains(got, "rc=1;errmsg="+refused) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"abcdef", "     0", "    10cmd=nothing", two("no-such-command")} {
		fresh := newNode(t, plan.PMI{Ranks: []uint32{0}})
		fresh.say(0, "cmd=init pmi_version=2 pmi_subversion=0\n")
		if _, err := fresh.Read(0, []byte(bad+strings.Repeat(" ", 10))); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Whatever tasks put on whatever nodes, after a fence all of them get all of
// it, in pieces of whatever size they speak.
func TestFencesOfSeveralNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*node
		var versions [][]int
		size := uint32(0)
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			var ranks []uint32
			var v []int
			for range rapid.IntRange(1, 4).Draw(t, "tasks") {
				ranks = append(ranks, size)
				size++
				v = append(v, rapid.IntRange(1, 2).Draw(t, "version"))
			}
			nodes = append(nodes, newNode(nil, plan.PMI{Job: "1.0", Node: uint32(i), Ranks: ranks}))
			versions = append(versions, v)
		}
		speak := func(n *node, task int, text string) Result {
			var all Result
			for len(text) > 0 {
				k := min(len(text), rapid.IntRange(1, 20).Draw(t, "piece"))
				res, err := n.Read(task, []byte(text[:k]))
				if err != nil {
					t.Fatal(err)
				}
				n.take(res)
				all.Reached, text = all.Reached || res.Reached, text[k:]
				if res.Reached {
					all.Number, all.Fence = res.Number, res.Fence
				}
			}
			return all
		}
		for i, n := range nodes {
			for task, v := range versions[i] {
				speak(n, task, fmt.Sprintf("cmd=init pmi_version=%d pmi_subversion=%d\n", v, 2-v))
			}
		}
		want := map[string]string{}
		for round := range rapid.IntRange(1, 3).Draw(t, "rounds") {
			var parts [][]byte
			for i, n := range nodes {
				for task, v := range versions[i] {
					for range rapid.IntRange(0, 3).Draw(t, "puts") {
						key := fmt.Sprintf("k%d-%d-%d", i, task, rapid.IntRange(0, 2).Draw(t, "key"))
						value := rapid.StringMatching(`[a-z;=0-9]{0,12}`).Draw(t, "value")
						want[key] = value
						if v == 1 {
							speak(n, task, "cmd=put kvsname=1.0 key="+key+" value="+value+"\n")
						} else {
							speak(n, task, two("kvs-put", "key", key, "value", value))
						}
					}
					res := speak(n, task, map[int]string{1: "cmd=barrier_in\n", 2: two("kvs-fence")}[v])
					if res.Reached != (task == len(versions[i])-1) {
						t.Fatalf("reached %v at task %d", res.Reached, task)
					}
					if res.Reached {
						if res.Number != uint64(round+1) {
							t.Fatalf("fence %d, want %d", res.Number, round+1)
						}
						parts = append(parts, res.Fence)
					}
				}
			}
			all, err := Merge(parts)
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range nodes {
				for range 2 { // a repeat changes nothing
					res, err := n.Merged(uint64(round+1), all)
					if err != nil {
						t.Fatal(err)
					}
					n.take(res)
				}
				for task, v := range versions[i] {
					for _, key := range slices.Sorted(maps.Keys(want)) {
						n.heard(task)
						answer := "cmd=get_result rc=0 msg=success value=" + want[key] + "\n"
						if v == 1 {
							speak(n, task, "cmd=get kvsname=1.0 key="+key+"\n")
						} else {
							answer = two("kvs-get-response", "found", "TRUE", "value", want[key], "rc", "0")
							speak(n, task, two("kvs-get", "jobid", "1.0", "key", key))
						}
						if got := n.heard(task); got != answer {
							t.Fatalf("task %d of node %d gets %s as %q, want %q", task, i, key, got, answer)
						}
					}
				}
			}
		}
	})
}

// A mapping that is read back tells of each rank what it was made of.
func TestMapping(t *testing.T) {
	for _, c := range []struct {
		of   []uint32
		want string
	}{
		{nil, "(vector)"}, {[]uint32{0}, "(vector,(0,1,1))"}, {[]uint32{0, 0, 1, 1}, "(vector,(0,2,2))"}, {[]uint32{0, 1, 0, 1}, "(vector,(0,2,1),(0,2,1))"},
		{[]uint32{0, 0, 1}, "(vector,(0,1,2),(1,1,1))"}, {[]uint32{2, 2, 0, 0}, "(vector,(2,1,2),(0,1,2))"},
	} {
		if got := Mapping(c.of); got != c.want {
			t.Errorf("%v: %s, want %s", c.of, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SliceOfN(rapid.Uint32Range(0, 3), 0, 20).Draw(t, "nodes")
		var back []uint32
		for _, block := range strings.Split(strings.Trim(Mapping(of), "()"), ",(")[1:] {
			var x [3]int
			for i, f := range strings.Split(strings.TrimSuffix(block, ")"), ",") {
				x[i], _ = strconv.Atoi(f)
			}
			for n := range x[1] {
				for range x[2] {
					back = append(back, uint32(x[0]+n))
				}
			}
		}
		if !slices.Equal(back, of) {
			t.Fatalf("%v is mapped as %s, which is %v", of, Mapping(of), back)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(1, []byte("cmd=put kvsname=a key=b value=c\ncmd=barrier_in\n"))
	f.Add(2, []byte(two("fullinit")+two("kvs-put", "key", "a", "value", "b;")+two("kvs-fence")))
	f.Fuzz(func(t *testing.T, version int, b []byte) {
		s := New(plan.PMI{Job: "1.0", Size: 1, Nodes: 1, Ranks: []uint32{0}})
		_, _ = s.Read(0, fmt.Appendf(nil, "cmd=init pmi_version=%d pmi_subversion=0\n", version))
		res, err := s.Read(0, b)
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
		if res.Reached {
			if _, err := s.Merged(res.Number, res.Fence); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What a node's tasks may put takes no more room in a message than is counted.
func TestWhatIsPutFitsIntoAMessage(t *testing.T) {
	const room = 10_000
	s := New(plan.PMI{})
	s.held = maxHeld - room
	for i := 0; s.storeKey(s.put, strconv.Itoa(i), "") == nil; i++ {
	}
	if n := len(encodePairs(s.put)); n > room || n < room/4 {
		t.Errorf("%d bytes in the room of %d", n, room)
	}
	if err := s.storeKey(s.put, "x", strings.Repeat("v", maxValue)); err == nil {
		t.Error("more is taken")
	}
}
