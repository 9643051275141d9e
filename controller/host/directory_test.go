package host

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	at := time.Now()
	d.now = func() time.Time { return at }
	later := func(by time.Duration) { at = at.Add(by) }
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
	later(failureTTL)
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
	later(groupsTTL)
	if name, ids := d.Groups(t.Context(), "ldap", 3000); name != "staff" || !slices.Equal(ids, []uint32{3000, 3001}) {
		t.Errorf("a service that went away takes groups away: %q %v", name, ids)
	}
}

// TestDirectoryOfAHangingService: both questions about a user's groups are asked at once,
// a service that does not answer is not asked about the same user again for a while, and
// callers who ask together wait for one answer.
func TestDirectoryOfAHangingService(t *testing.T) {
	dir := t.TempDir()
	getent := filepath.Join(dir, "getent")
	// Each of the two questions is answered once the other has been asked.
	text := `#!/bin/sh
echo x >>"$0.$1"
case "$1" in
group) other=initgroups;;
initgroups) other=group;;
passwd) exit 1;;
esac
until test -e "$0.$other"; do sleep 0.01; done
exit 1
`
	if err := os.WriteFile(getent, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	asked := func(database string, want int) {
		t.Helper()
		list, err := os.ReadFile(getent + "." + database)
		if err != nil || strings.Count(string(list), "x") != want {
			t.Errorf("%s was asked for %d times, want %d: %v", database, strings.Count(string(list), "x"), want, err)
		}
	}
	d := NewDirectory(slog.New(slog.DiscardHandler))
	d.databases = nss.Databases{Passwd: "/dev/null", Group: "/dev/null", Getent: getent, Limit: time.Hour}
	at := time.Now()
	d.now = func() time.Time { return at }
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if name, ids := d.Groups(t.Context(), "u", 7); name != "7" || !slices.Equal(ids, []uint32{7}) {
				t.Errorf("%q %v", name, ids)
			}
		})
	}
	callers.Wait()
	for range 2 {
		if _, _, ok := d.User(t.Context(), "u"); ok {
			t.Error("a user whom nobody knows")
		}
	}
	asked("group", 1)
	asked("initgroups", 1)
	asked("passwd", 1)
	at = at.Add(failureTTL)
	d.Groups(t.Context(), "u", 7)
	d.User(t.Context(), "u")
	asked("group", 2)
	asked("initgroups", 2)
	asked("passwd", 2)

	// Who leaves does not wait for the service.
	d.databases.Getent = filepath.Join(dir, "never")
	if err := os.WriteFile(d.databases.Getent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	d.databases.Limit = time.Second
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if name, ids := d.Groups(gone, "other", 8); name != "8" || !slices.Equal(ids, []uint32{8}) {
		t.Errorf("%q %v", name, ids)
	}
}
