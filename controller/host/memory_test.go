package host

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestHeapRoom(t *testing.T) {
	for _, c := range []struct {
		memory, live uint64
		percent      int
	}{
		{32 << 30, 0, 6400}, {32 << 30, 128 << 20, 200}, {32 << 30, 4 << 30, 100}, {2 << 30, 64 << 20, 200}, {64 << 20, 0, 100},
	} {
		if got := gcPercent(heapRoom(c.memory), c.live); got != c.percent {
			t.Errorf("%d of %d live: %d %%, want %d", c.live, c.memory, got, c.percent)
		}
	}
	dir := t.TempDir()
	for text, want := range map[string]uint64{"MemFree: 1 kB\nMemTotal:       24047 kB\n": 24047 << 10, "": 0, "MemTotal: much kB\n": 0} {
		path := filepath.Join(dir, "meminfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := memoryTotal(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// The setting follows what lives.
func TestRoomForGarbage(t *testing.T) {
	if _, set := os.LookupEnv("GOGC"); set {
		t.Skip("SKIPPED: GOGC is set, so the setting is left alone")
	}
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	MakeRoomForGarbage()
	first := percentNow()
	live := make([]byte, 256<<20)
	for i := 0; i < len(live); i += 4096 {
		live[i] = 1
	}
	for deadline := time.Now().Add(10 * time.Second); percentNow() == first; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("with 256 MiB alive the setting is still %d %%", first)
		}
	}
	if got := percentNow(); got < 100 || got >= first {
		t.Errorf("first %d %%, with 256 MiB alive %d %%", first, got)
	}
	runtime.KeepAlive(live)
}

// percentNow reads the setting.
func percentNow() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}
