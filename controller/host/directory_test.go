package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/nss"
)

// TestDirectory: users and groups of a directory service count as those of the files
// do, and a question that was not answered is asked again.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	getent := filepath.Join(dir, "getent")
	text := `#!/bin/sh
test -e "$0.away" && exit 1
case "$1 $2" in
'passwd ldap') echo 'ldap:*:2000:3000::/net/ldap:/bin/sh';;
'group 3000') echo 'staff:*:3000:';;
'initgroups ldap') echo 'ldap 3000 3001';;
*) exit 2;;
esac
`
	if err := os.WriteFile(getent, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	var log strings.Builder
	d := NewDirectory(slog.New(slog.NewTextHandler(&log, nil)))
	d.databases = nss.Databases{Passwd: "/dev/null", Group: "/dev/null", Getent: getent, Limit: time.Hour}
	away := func(is bool) {
		if is {
			if err := os.WriteFile(getent+".away", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Remove(getent + ".away"); err != nil {
			t.Fatal(err)
		}
	}
	away(true)
	if name, ids := d.Groups(t.Context(), "ldap", 3000); name != "3000" || !slices.Equal(ids, []uint32{3000}) {
		t.Errorf("while the service is away: %q %v", name, ids)
	}
	if !strings.Contains(log.String(), "groups of a user cannot be looked up") {
		t.Errorf("the log says %q", log.String())
	}
	away(false)
	for range 2 {
		if name, ids := d.Groups(t.Context(), "ldap", 3000); name != "staff" || !slices.Equal(ids, []uint32{3000, 3001}) {
			t.Errorf("%q %v", name, ids)
		}
		if uid, gid, ok := d.User(t.Context(), "ldap"); uid != 2000 || gid != 3000 || !ok {
			t.Errorf("%d %d %v", uid, gid, ok)
		}
		if _, _, ok := d.User(t.Context(), "nobody-here"); ok {
			t.Error("a user that is not there")
		}
	}
	away(true)
	if name, _ := d.Groups(t.Context(), "ldap", 3000); name != "staff" {
		t.Errorf("an answer is not kept: %q", name)
	}
}
