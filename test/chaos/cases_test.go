package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestScenariosAreChosenByName(t *testing.T) {
	for text, want := range map[string]int{"": 0, "flip": 1, "restore,silence": 2, "silence,flip,restore": 3} {
		list, err := (&options{scenarios: text}).chosen()
		if err != nil || len(list) != want {
			t.Errorf("%q: %d scenarios, %v, want %d", text, len(list), err, want)
		}
	}
	list, err := (&options{scenarios: "restore,silence"}).chosen()
	if err != nil || list[len(list)-1].name != "restore" {
		t.Errorf("the case that removes history is not the last: %v, %v", list, err)
	}
	for _, text := range []string{"flop", "flip,flip", "flip,flop"} {
		if _, err := (&options{scenarios: text}).chosen(); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestFlipByte: one bit of one byte that was written changes, and nothing else.
func TestFlipByte(t *testing.T) {
	dir := t.TempDir()
	before := append(make([]byte, 100), "some records"...)
	before = append(before, make([]byte, 1000)...)
	path := filepath.Join(dir, "1.wal")
	for seed := range uint64(50) {
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		k := &killer{rng: rng(seed, 0)}
		if _, err := k.flipByte(dir); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil || len(after) != len(before) {
			t.Fatalf("%d bytes, %v", len(after), err)
		}
		changed := 0
		for i := range before {
			if before[i] == after[i] {
				continue
			}
			changed++
			if bit := before[i] ^ after[i]; before[i] == 0 || bit&(bit-1) != 0 {
				t.Errorf("byte %d went from %x to %x", i, before[i], after[i])
			}
		}
		if changed != 1 {
			t.Errorf("%d bytes changed", changed)
		}
	}
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&killer{rng: rng(1, 0)}).flipByte(dir); err == nil {
		t.Error("an empty log is damaged")
	}
}
