package care

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// auditVerify runs the command and gives what it printed and said.
func auditVerify(args ...string) (out, said string, code int) {
	var o, e bytes.Buffer
	code = AuditCommand(append([]string{"verify"}, args...), &o, &e)
	return o.String(), e.String(), code
}

// TestAuditVerify: a ledger that was written is whole, a link that was kept finds a past that
// was exchanged together with its chain, and a changed byte is named with its file.
func TestAuditVerify(t *testing.T) {
	folders := make([]*storetest.Folder, 2)
	links := make([]string, 2)
	for i := range folders {
		f := storetest.NewFolder(t)
		folders[i] = f
		if err := f.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { f.Write(l, 30) }); err != nil {
			t.Fatal(err)
		}
		out, said, code := auditVerify("--archive", filepath.Join(f.Dir, "archive"))
		_, link, found := strings.Cut(strings.TrimSpace(out), "newest link: ")
		if code != 0 || said != "" || !found {
			t.Fatalf("a whole archive: %d %s\n%s", code, said, out)
		}
		links[i] = link
	}
	dir := filepath.Join(folders[0].Dir, "archive")
	kept := filepath.Join(t.TempDir(), "links")
	if err := os.WriteFile(kept, []byte(links[0]+"\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, code := auditVerify("--archive", dir, "--expect-from", kept)
	if code != 0 || !strings.Contains(out, "1 of 1 links that were kept elsewhere were compared") {
		t.Errorf("with its own link: %d %s\n%s", code, said, out)
	}
	pos, rest, _ := strings.Cut(links[0], ":")
	other := pos + ":" + strings.Replace(rest, rest[len(rest)-8:], "00000000", 1)
	out, said, code = auditVerify("--archive", dir, "--expect", other)
	if code != 1 || !strings.Contains(out, "kept elsewhere was "+other[len(other)-64:]) || !strings.Contains(said, "(1 places)") {
		t.Errorf("with another link: %d %s\n%s", code, said, out)
	}
	segment := storetest.OnlyFile(t, filepath.Join(dir, "segments", "*"))
	storetest.FlipBit(t, segment, 200)
	out, _, code = auditVerify("--archive", dir)
	if code != 1 || !strings.Contains(out, segment+" at offset") {
		t.Errorf("a flipped bit: %d\n%s", code, out)
	}
}

func TestAuditVerifyRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no backup in":                {"--backup", t.TempDir()},
		"exclude each other":                   {"--backup", "/a", "--archive", "/b"},
		`invalid link "5"`:                     {"--archive", "/a", "--expect", "5"},
		"the archive has no hash chain":        {"--archive", t.TempDir()},
		"verify is required and the only word": {"now"},
	} {
		if _, said, code := auditVerify(args...); code == 0 || !strings.Contains(said, want) {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
}
