package host

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Garbage is collected when the heap has grown by as much as lives in it. In a
// controller that has just started little lives, so that a burst of submissions
// would be held up by one collection after the other; here the heap may always
// grow by some room first, as far as the machine has it.
//
// What the heap has once grown to stays resident: the runtime keeps the pages up to
// the next goal. The room is therefore what a controller of few jobs needs of memory,
// however little lives in it, and one user's expensive requests fill it in seconds.
const (
	maxRoom   = 256 << 20
	partOfRAM = 16 // of the machine's memory at most one part in so many
	leastHeap = 4 << 20
)

// heapRoom is how far the heap may grow on a machine with so much memory.
func heapRoom(memory uint64) uint64 { return min(maxRoom, memory/partOfRAM) }

// gcPercent is the setting by which a heap of which so much lives may grow by
// the room, and never by less than Go's own setting lets it.
func gcPercent(room, live uint64) int {
	return int(max(100, 100*room/max(live, leastHeap)))
}

// MakeRoomForGarbage keeps the setting right after each collection. Who has set
// GOGC knows better.
func MakeRoomForGarbage() {
	room := heapRoom(memoryTotal("/proc/meminfo"))
	if _, set := os.LookupEnv("GOGC"); set || room == 0 {
		return
	}
	percent := gcPercent(room, 0)
	debug.SetGCPercent(percent)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var again func(*sentinel)
	again = func(s *sentinel) {
		metrics.Read(sample)
		// Setting it stops the world for a moment, so small changes wait.
		if want := gcPercent(room, sample[0].Value.Uint64()); want*5 < percent*4 ||
			want*4 > percent*5 {
			percent = want
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(s, again)
	}
	runtime.SetFinalizer(&sentinel{}, again)
}

// sentinel is garbage that each collection finds.
type sentinel struct{ _ [16]byte }

// memoryTotal is MemTotal in bytes; 0 = not known.
func memoryTotal(path string) uint64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseUint(
				strings.TrimSuffix(strings.TrimSpace(rest), " kB"),
				10,
				50,
			)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
