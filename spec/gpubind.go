package spec

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// GPUBindKind says how the tasks of a node are spread over its devices.
type GPUBindKind uint8

// The kinds of --gpu-bind.
const (
	BindNone    GPUBindKind = iota // each task has all devices
	BindClosest                    // those near the task's CPUs
	BindMap                        // a list of devices, one for each task
	BindMask                       // a list of sets of devices, one for each task
	BindPerTask                    // N devices of its own for each task
	BindSingle                     // one device for every N tasks
)

// GPUBind is a --gpu-bind: which of a job's devices on a node a task uses.
type GPUBind struct {
	Kind    GPUBindKind
	N       int      // of BindPerTask and BindSingle
	List    []uint64 // of BindMap: numbers of devices; of BindMask: sets of them
	Verbose bool
}

// maxBindList bounds a list after its repetitions are written out.
const maxBindList = 4096

// ParseGPUBind reads [verbose,]closest|none|single:N|per_task:N|map_gpu:list|mask_gpu:list.
// The lists hold entries and repetitions: map_gpu:0*4,1*4.
func ParseGPUBind(text string) (GPUBind, error) {
	var bind GPUBind
	rest := text
	for {
		word, more, found := strings.Cut(rest, ",")
		if l := strings.ToLower(word); l != "verbose" && l != "v" {
			break
		}
		bind.Verbose, rest = true, more
		if !found {
			return bind, nil // verbose alone: no binding
		}
	}
	kind, arg, has := strings.Cut(rest, ":")
	kind = strings.ToLower(kind)
	if plain := kind == "closest" || kind == "none"; plain == has {
		return bind, badGPUBind(text)
	}
	var err error
	switch kind {
	case "none":
	case "closest":
		bind.Kind = BindClosest
	case "single", "per_task":
		bind.Kind = BindSingle
		if kind == "per_task" {
			bind.Kind = BindPerTask
		}
		bind.N, err = strconv.Atoi(arg)
		if err != nil || bind.N < 1 || bind.N > 1<<16 {
			return bind, badGPUBind(text)
		}
	case "map_gpu":
		bind.Kind = BindMap
		bind.List, err = bindList(
			arg,
			func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 16) },
		)
	case "mask_gpu":
		bind.Kind = BindMask
		bind.List, err = bindList(arg, func(s string) (uint64, error) {
			return strconv.ParseUint(strings.TrimPrefix(strings.ToLower(s), "0x"), 16, 64)
		})
	default:
		return bind, badGPUBind(text)
	}
	if err != nil {
		return bind, badGPUBind(text)
	}
	return bind, nil
}

func badGPUBind(text string) error {
	return fmt.Errorf(
		"%q is no binding of tasks to GPUs: want [verbose,]closest, none, single:N, per_task:N, map_gpu:0,1,… or mask_gpu:0x3,0xc,…",
		text,
	)
}

// bindList reads entries, each with an optional *repetition.
func bindList(text string, entry func(string) (uint64, error)) ([]uint64, error) {
	var out []uint64
	for word := range strings.SplitSeq(text, ",") {
		one, times, repeated := strings.Cut(word, "*")
		n := 1
		value, err := entry(one)
		if err == nil && repeated {
			n, err = strconv.Atoi(times)
		}
		if err != nil {
			return nil, err
		}
		if n < 1 || n > maxBindList-len(out) {
			return nil, strconv.ErrRange
		}
		out = append(out, slices.Repeat([]uint64{value}, n)...)
	}
	return out, nil
}

// BoundTask is a task as a binding sees it.
type BoundTask struct {
	Local int    // its number among the job's tasks on the node
	CPUs  Bitset // that it may run on
}

// BindableGPU is one of the job's devices on the task's node.
type BindableGPU struct {
	Number uint32 // by which lists name it
	CPUs   Bitset // near it; empty = not known
}

// Devices gives the places of the devices that a task uses, ascending. A list
// that names none of the job's devices gives the first of them, and missed is
// true.
func (b *GPUBind) Devices(task BoundTask, gpus []BindableGPU) (places []int, missed bool) {
	if len(gpus) == 0 {
		return nil, false
	}
	switch b.Kind {
	case BindNone:
		return allPlaces(len(gpus)), false
	case BindClosest:
		return nearest(task, gpus), false
	case BindSingle:
		near := nearest(task, gpus)
		return near[task.Local/b.N%len(near) : task.Local/b.N%len(near)+1], false
	case BindPerTask:
		return perTask(task.Local, b.N, gpus), false
	case BindMap, BindMask:
		if len(b.List) == 0 {
			return allPlaces(len(gpus)), false
		}
		value := b.List[task.Local%len(b.List)]
		for i := range gpus {
			n := uint64(gpus[i].Number)
			bound := value == n
			if b.Kind == BindMask {
				bound = n < 64 && value>>n&1 == 1
			}
			if bound {
				places = append(places, i)
			}
		}
		if len(places) == 0 {
			return []int{0}, true
		}
		return places, b.Kind == BindMask && bits.OnesCount64(value) > len(places)
	}
	return allPlaces(len(gpus)), false
}

func allPlaces(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// nearest are the devices near a task's CPUs; all of them where none is.
func nearest(task BoundTask, gpus []BindableGPU) []int {
	var out []int
	for i := range gpus {
		if gpus[i].CPUs.Intersects(task.CPUs) {
			out = append(out, i)
		}
	}
	if out == nil {
		return allPlaces(len(gpus))
	}
	return out
}

// perTask gives each task devices that no other task has, as long as there are
// some: the first task the first n, the next the next n. They are counted in
// the order of the CPUs that they are near, which is the order in which tasks
// are put on CPUs, so that a task and its devices meet.
func perTask(local, n int, gpus []BindableGPU) []int {
	order := allPlaces(len(gpus))
	first := func(i int) int {
		if m := gpus[i].CPUs.Members(); len(m) > 0 {
			return int(m[0])
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int { return first(a) - first(b) })
	n = min(n, len(gpus))
	out := make([]int, n)
	for i := range out {
		out[i] = order[(local*n+i)%len(order)]
	}
	slices.Sort(out)
	return out
}
