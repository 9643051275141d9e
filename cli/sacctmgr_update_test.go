package cli

import (
	"strings"
	"testing"
)

// TestSacctmgrUpdate: update is another word for modify, down to the complaint about
// what is missing.
func TestSacctmgrUpdate(t *testing.T) {
	w := newWorld(t)
	modify, update := w.run("sacctmgr", "-i", "modify", "account", "a"), w.run("sacctmgr", "-i", "update", "account", "a")
	if update != modify || update.code == 0 || strings.Contains(update.errOut, "invalid keyword") {
		t.Errorf("update: %+v, modify: %+v", update, modify)
	}
}
