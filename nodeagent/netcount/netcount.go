//go:build linux

// Package netcount counts the bytes that control groups send and receive, by two
// eBPF programs for all of a node's runs together.
//
// The programs are attached to the group below which the shepherd creates the groups
// of the runs, so that the start of a run costs nothing: for each packet they find the run's group
// among the ancestors of the socket's, and add its length to the entry of that
// group in a map. A job's containers and the groups that it creates are counted
// for the run. Loopback is counted separately, since it is not traffic of the node,
// and so is IPv6.
//
// A length is that of the IP packet as the socket layer hands it over: the card
// may segment it, and the headers of the segments are not counted. RDMA bypasses
// the socket layer; the counters of the ports include it.
//
// The programs and the map stay in the kernel until the group that they are attached to is
// removed, so that a restart of the agent loses nothing: Open finds them again.
package netcount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Bytes are what a group has sent and received since its first packet.
type Bytes struct {
	In4, In6, InLoop    uint64
	Out4, Out6, OutLoop uint64
}

// ErrRefused is wrapped where the kernel takes no such program.
var ErrRefused = errors.New("bytes over the network are not counted by job")

// Counter counts below one group.
type Counter struct {
	tree  string
	inode uint64
	bytes *ebpf.Map // id of a run's group -> Bytes
}

// maxGroups bounds the groups that are counted at a time.
const maxGroups = 16_384

// Open counts below tree, whose runs' groups lie so many levels deeper. What an
// earlier agent counts there goes on.
func Open(tree string, depth int) (*Counter, error) {
	inode, err := GroupID(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	level, err := levelOf(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	counter := &Counter{tree: tree, inode: inode}
	fd, err := os.Open(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	defer func() { _ = fd.Close() }()
	// Before 5.11 kernels charge maps to RLIMIT_MEMLOCK; later ones do not care.
	_ = rlimit.RemoveMemlock()
	counter.bytes = findMap(int(fd.Fd()), level+depth)
	if counter.bytes != nil {
		return counter, nil
	}
	if err := counter.attach(int(fd.Fd()), level+depth); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return counter, nil
}

// directions are the two programs: where they hang, and the first field of Bytes
// that they add to.
var directions = []struct {
	name   string
	attach ebpf.AttachType
	first  int32
}{
	{"rx", ebpf.AttachCGroupInetIngress, 0},
	{"tx", ebpf.AttachCGroupInetEgress, 3},
}

// programName tells the programs of this shape and level from others; the kernel
// keeps 15 characters.
func programName(direction string, level int) string {
	return fmt.Sprintf("muster_%s1_%d", direction, level)
}

// findMap finds the map of the programs that hang at a group already; nil where not
// both do.
func findMap(group, level int) *ebpf.Map {
	var found ebpf.MapID
	for _, direction := range directions {
		hanging, err := link.QueryPrograms(
			link.QueryOptions{Target: group, Attach: direction.attach},
		)
		if err != nil {
			return nil
		}
		id, ok := ebpf.MapID(0), false
		for _, one := range hanging.Programs {
			id, ok = mapOf(one.ID, programName(direction.name, level))
			if ok {
				break
			}
		}
		if !ok || found != 0 && found != id {
			return nil
		}
		found = id
	}
	shared, err := ebpf.NewMapFromID(found)
	if err != nil {
		return nil
	}
	return shared
}

// mapOf gives the map of a program, if it has the name.
func mapOf(id ebpf.ProgramID, name string) (ebpf.MapID, bool) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return 0, false
	}
	defer func() { _ = program.Close() }()
	info, err := program.Info()
	if err != nil || info.Name != name {
		return 0, false
	}
	maps, _ := info.MapIDs()
	if len(maps) != 1 {
		return 0, false
	}
	return maps[0], true
}

// attach makes the map and the programs, and hangs them at the group.
func (c *Counter) attach(group, level int) error {
	shared, err := ebpf.NewMap(&ebpf.MapSpec{
		Name:       "muster_bytes",
		Type:       ebpf.Hash,
		KeySize:    8,
		ValueSize:  48,
		MaxEntries: maxGroups,
		Flags:      unix.BPF_F_NO_PREALLOC,
	})
	if err != nil {
		return fmt.Errorf("make the map: %w", err)
	}
	for _, direction := range directions {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name:         programName(direction.name, level),
			Type:         ebpf.CGroupSKB,
			AttachType:   direction.attach,
			Instructions: countProgram(shared.FD(), level, direction.first),
			License:      "Apache-2.0",
		})
		if err == nil {
			err = link.RawAttachProgram(link.RawAttachProgramOptions{
				Target:  group,
				Program: program,
				Attach:  direction.attach,
				// Programs of systemd and of nested containers stay in force beside ours.
				Flags: unix.BPF_F_ALLOW_MULTI,
			})
			_ = program.Close() // the group holds it
		}
		if err != nil {
			_ = shared.Close()
			return fmt.Errorf("program %s: %w", direction.name, err)
		}
	}
	c.bytes = shared
	return nil
}

// Offsets in struct __sk_buff, and the protocol of IPv6 as it stands there.
const (
	skbLen      = 0
	skbProtocol = 16
	skbIfindex  = 40

	protocolIPv6 = 0x86dd
	// loopback is the index of lo in every network namespace.
	loopback = 1
)

// countProgram adds the length of a packet to the entry of the run's group, and
// lets the packet pass.
func countProgram(bytes, level int, first int32) asm.Instructions {
	// The field protocol is in network order.
	ipv6 := int32(protocolIPv6)
	if isLittleEndian() {
		ipv6 = ipv6>>8 | ipv6&0xff<<8
	}
	lookup := asm.Instructions{
		asm.LoadMapPtr(asm.R1, bytes),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapLookupElem.Call(),
	}
	program := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, int32(level)),
		asm.FnSkbAncestorCgroupId.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"), // a socket without a group, or not of a run
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),

		// R7 is the offset of the field.
		asm.Mov.Imm(asm.R7, 8*(first+2)),
		asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word),
		asm.JEq.Imm(asm.R1, loopback, "known"),
		asm.Mov.Imm(asm.R7, 8*(first+1)),
		asm.LoadMem(asm.R1, asm.R6, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R1, ipv6, "known"),
		asm.Mov.Imm(asm.R7, 8*first),
	}
	known := append(asm.Instructions{}, lookup...)
	known[0] = known[0].WithSymbol("known")
	program = append(program, known...)
	program = append(program, asm.JNE.Imm(asm.R0, 0, "add"))
	// The first packet of a group: another CPU may make the entry at the same time.
	program = append(program, asm.Mov.Imm(asm.R1, 0))
	for offset := int16(-56); offset < -8; offset += 8 {
		program = append(program, asm.StoreMem(asm.RFP, offset, asm.R1, asm.DWord))
	}
	program = append(program,
		asm.LoadMapPtr(asm.R1, bytes),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -56),
		asm.Mov.Imm(asm.R4, unix.BPF_NOEXIST),
		asm.FnMapUpdateElem.Call(),
	)
	program = append(program, lookup...)
	return append(program,
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Add.Reg(asm.R0, asm.R7).WithSymbol("add"),
		asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	)
}

// Is tells that the counter hangs at a group as it is now. A shepherd that had no
// runs left takes its group away when it ends, and the next makes it anew.
func (c *Counter) Is(tree string) bool {
	inode, err := GroupID(tree)
	return err == nil && tree == c.tree && inode == c.inode
}

// Read gives what a group has sent and received; zero before its first packet.
func (c *Counter) Read(group uint64) (Bytes, error) {
	var bytes Bytes
	err := c.bytes.Lookup(group, &bytes)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Bytes{}, nil
	}
	return bytes, err
}

// Forget drops what a group has counted.
func (c *Counter) Forget(group uint64) {
	_ = c.bytes.Delete(group) // it may have sent nothing
}

// Groups lists the groups that have an entry.
func (c *Counter) Groups() []uint64 {
	var out []uint64
	var group uint64
	var bytes Bytes
	for all := c.bytes.Iterate(); all.Next(&group, &bytes); {
		out = append(out, group)
	}
	return out
}

// Close releases the counter; the kernel goes on counting.
func (c *Counter) Close() { _ = c.bytes.Close() }

// GroupID is the number by which the kernel knows a group.
func GroupID(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: errors.ErrUnsupported}
	}
	return stat.Ino, nil
}

// initialGroups is the inode of the first namespace of control groups, which is part
// of the kernel's interface.
const initialGroups = "cgroup:[4026531835]"

// levelOf is how deep a group lies below the root of its hierarchy. In a namespace
// of groups the root is not visible, so that nobody can tell.
func levelOf(tree string) (int, error) {
	own, err := os.Readlink("/proc/self/ns/cgroup")
	if err != nil {
		return 0, err
	}
	if own != initialGroups {
		return 0, errors.New("the agent runs in a namespace of control groups (a container)")
	}
	for level, dir := 0, filepath.Clean(tree); ; level++ {
		// Only the root of a hierarchy has no cgroup.type.
		_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist) && level > 0:
			return level, nil
		default:
			return 0, fmt.Errorf("%s is not a group of a v2 hierarchy", tree)
		}
		parent := filepath.Dir(dir)
		if parent == dir || !strings.HasPrefix(dir, "/") {
			return 0, fmt.Errorf("%s is not a group of a v2 hierarchy", tree)
		}
		dir = parent
	}
}
