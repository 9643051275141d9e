//go:build linux

package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The v2 hierarchy has no devices controller. Instead the kernel runs an eBPF
// program of type CGROUP_DEVICE at every open and mknod of a device by a process
// in the group or below it, and refuses the access with EPERM where the program
// returns 0. A group's program disappears with the group, so nothing has to be
// detached. The program is small and fixed in shape, so it is assembled here
// instead of through a loader library, which would double the size of the
// shepherd.

// bpfInstruction is one instruction as the kernel reads it (struct bpf_insn).
type bpfInstruction struct {
	opcode    uint8
	registers uint8 // destination in the low four bits, source in the high four
	offset    int16
	immediate int32
}

// Opcodes of the instructions that the program uses: class, size or operation,
// and mode, combined as linux/bpf.h does.
const (
	loadWord       = 0x61 // BPF_LDX | BPF_W | BPF_MEM
	andImmediate   = 0x57 // BPF_ALU64 | BPF_AND | BPF_K
	moveImmediate  = 0xb7 // BPF_ALU64 | BPF_MOV | BPF_K
	jumpEqual      = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	jumpNotEqual   = 0x55 // BPF_JMP | BPF_JNE | BPF_K
	jumpNotSmaller = 0x35 // BPF_JMP | BPF_JGE | BPF_K
	exitProgram    = 0x95 // BPF_JMP | BPF_EXIT
)

// Registers: the verifier passes the context in r1 and reads the verdict from r0.
const (
	regVerdict = iota
	regContext
	regType
	regMajor
	regMinor
)

// Offsets of the fields of struct bpf_cgroup_dev_ctx, and the value that its
// type field has for a character device.
const (
	accessAndType   = 0
	majorOffset     = 4
	minorOffset     = 8
	characterDevice = 2
)

// deviceProgram refuses NVIDIA's GPU devices except the allowed minors, and
// allows everything else, like fence does for the v1 controller.
func deviceProgram(allowed *[nvidiaControl]bool) []bpfInstruction {
	reg := func(destination, source uint8) uint8 { return destination | source<<4 }
	program := []bpfInstruction{
		{opcode: loadWord, registers: reg(regType, regContext), offset: accessAndType},
		// The high half holds the kind of access. All kinds are refused alike.
		{opcode: andImmediate, registers: reg(regType, 0), immediate: 0xffff},
		{opcode: jumpNotEqual, registers: reg(regType, 0), immediate: characterDevice},
		{opcode: loadWord, registers: reg(regMajor, regContext), offset: majorOffset},
		{opcode: jumpNotEqual, registers: reg(regMajor, 0), immediate: nvidiaMajor},
		{opcode: loadWord, registers: reg(regMinor, regContext), offset: minorOffset},
		{opcode: jumpNotSmaller, registers: reg(regMinor, 0), immediate: nvidiaControl},
	}
	for minor, ok := range allowed {
		if ok {
			program = append(
				program,
				bpfInstruction{
					opcode:    jumpEqual,
					registers: reg(regMinor, 0),
					immediate: int32(minor),
				},
			)
		}
	}
	program = append(program,
		bpfInstruction{opcode: moveImmediate, registers: regVerdict, immediate: 0},
		bpfInstruction{opcode: exitProgram},
		bpfInstruction{opcode: moveImmediate, registers: regVerdict, immediate: 1},
		bpfInstruction{opcode: exitProgram})
	// Every jump leads to the instruction that allows. An offset counts from the
	// instruction behind the jump.
	allow := len(program) - 2
	for at := range program {
		switch program[at].opcode {
		case jumpEqual, jumpNotEqual, jumpNotSmaller:
			program[at].offset = int16(allow - at - 1)
		}
	}
	return program
}

// Commands and constants of the bpf system call.
const (
	bpfProgramLoad   = 5
	bpfProgramAttach = 8
	bpfCgroupDevice  = 6  // enum bpf_attach_type
	bpfTypeDevice    = 15 // enum bpf_prog_type
	// bpfAllowMultiple (BPF_F_ALLOW_MULTI) keeps programs of systemd and of nested
	// containers in force beside ours: an access needs the consent of all of them.
	bpfAllowMultiple = 2
)

// bpfLoad is the part of union bpf_attr that BPF_PROG_LOAD reads here.
type bpfLoad struct {
	programType      uint32
	instructionCount uint32
	instructions     uint64
	license          uint64
	logLevel         uint32
	logSize          uint32
	log              uint64
}

// bpfAttach is the part of union bpf_attr that BPF_PROG_ATTACH reads.
type bpfAttach struct {
	target     uint32
	program    uint32
	attachType uint32
	flags      uint32
}

func bpf(command uintptr, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// loadTries bounds how often a program is given to the kernel again that a signal interrupted.
// Each signal interrupts one try, and a try takes microseconds.
const loadTries = 1000

// loadProgram gives the kernel a program. The verifier stops with EAGAIN where a signal is
// pending for the thread. A shepherd has one for each process that ends, so that a program
// is interrupted most easily while many do, such as those of a fork bomb, and by the
// scheduler of Go.
func loadProgram(attributes *bpfLoad) (int, error) {
	fd, err := bpf(bpfProgramLoad, unsafe.Pointer(attributes), unsafe.Sizeof(*attributes))
	for try := 1; try < loadTries && errors.Is(err, unix.EAGAIN); try++ {
		fd, err = bpf(bpfProgramLoad, unsafe.Pointer(attributes), unsafe.Sizeof(*attributes))
	}
	return fd, err
}

// loadDeviceProgram gives the kernel a program and returns its file descriptor.
func loadDeviceProgram(program []bpfInstruction) (int, error) {
	code := make([]byte, 0, 8*len(program))
	for _, in := range program {
		code = append(code, in.opcode, in.registers)
		code = binary.NativeEndian.AppendUint16(code, uint16(in.offset))
		code = binary.NativeEndian.AppendUint32(code, uint32(in.immediate))
	}
	license := []byte("Apache-2.0\x00")
	// The kernel gets these addresses as numbers, which the runtime does not adjust
	// where it moves a stack.
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&code[0])
	pinned.Pin(&license[0])
	attributes := bpfLoad{
		programType:      bpfTypeDevice,
		instructionCount: uint32(len(program)),
		instructions:     uint64(uintptr(unsafe.Pointer(&code[0]))),
		license:          uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, err := loadProgram(&attributes)
	switch {
	case errors.Is(err, unix.EPERM):
		// Kernels before 5.11 charge programs to RLIMIT_MEMLOCK.
		return -1, fmt.Errorf(
			"load device program: %w (needs CAP_BPF or CAP_SYS_ADMIN; before Linux 5.11 also LimitMEMLOCK=infinity)",
			err,
		)
	case err != nil:
		return -1, fmt.Errorf("load device program: %w", err)
	}
	return fd, nil
}

// fenceV2 does for a v2 group what fence does for one of the v1 controller.
func fenceV2(dir string, devices []string) error {
	allowed, err := allowedMinors(devices)
	if err != nil {
		return err
	}
	program, err := loadDeviceProgram(deviceProgram(allowed))
	if err != nil {
		return err
	}
	// The group holds the program from the attachment on.
	defer func() { _ = unix.Close(program) }()
	group, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(group) }()
	attributes := bpfAttach{
		target:     uint32(group),
		program:    uint32(program),
		attachType: bpfCgroupDevice,
		flags:      bpfAllowMultiple,
	}
	if _, err := bpf(bpfProgramAttach, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)); err != nil {
		return &os.PathError{Op: "attach device program to", Path: dir, Err: err}
	}
	return nil
}

// probeDeviceProgram reports whether device programs work here, by attaching one
// to a group of its own.
func probeDeviceProgram(track string) error {
	dir := filepath.Join(track, fmt.Sprintf("probe-devices-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return errors.Join(fenceV2(dir, nil), os.Remove(dir))
}
