package nss

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// site makes databases of two files and a program in the place of getent.
func site(t *testing.T, getent string) Databases {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out := Databases{
		Passwd: put("passwd", "# a comment\n+nis\nshort:x:1\nada:x:1000:100:Ada:/home/ada:/bin/zsh\nodd:x:x:1::/:/\n", 0o644),
		Group:  put("group", "wheel:x:10:bob,ada\nusers:x:100:\nodd\n", 0o644),
		Limit:  time.Hour,
	}
	if getent != "" {
		out.Getent = put("getent", "#!/bin/sh\n"+getent, 0o755)
	}
	return out
}

// directory is a getent with one account, which is in a group of its own and in one
// of the file.
const directory = `case "$1 $2" in
'passwd 2000'|'passwd ldap') echo 'ldap:*:2000:3000:L:/net/ldap:/bin/tcsh';;
'group 3000') echo 'staff:*:3000:';;
'initgroups ldap') echo 'ldap                 3000 3001 10';;
'initgroups ada') echo 'ada                   3001';;
'passwd 5000') exit 1;;
*) exit 2;;
esac
`

func TestAccount(t *testing.T) {
	d := site(t, directory)
	files := site(t, "")
	for _, c := range []struct {
		of   *Databases
		uid  uint32
		want Account
		err  error
	}{
		{&d, 1000, Account{"ada", 1000, 100, "/home/ada", "/bin/zsh"}, nil},
		{&d, 2000, Account{"ldap", 2000, 3000, "/net/ldap", "/bin/tcsh"}, nil},
		{&d, 4000, Account{}, ErrUnknown},
		{&files, 1000, Account{"ada", 1000, 100, "/home/ada", "/bin/zsh"}, nil},
		{&files, 2000, Account{}, ErrUnknown},
	} {
		got, err := c.of.ByUID(t.Context(), c.uid)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d: %+v, %v", c.uid, got, err)
		}
	}
	if got, err := d.ByName(t.Context(), "ldap"); err != nil || got.UID != 2000 {
		t.Errorf("by name: %+v, %v", got, err)
	}
	for _, name := range []string{"", "-i", "nobody-here"} {
		if _, err := d.ByName(t.Context(), name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := d.ByUID(t.Context(), 5000); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("a getent that fails: %v", err)
	}
}

func TestGroups(t *testing.T) {
	d := site(t, directory)
	files := site(t, "")
	for _, c := range []struct {
		of   *Databases
		name string
		gid  uint32
		want []uint32
	}{
		{&d, "ada", 100, []uint32{100, 10, 3001}},
		{&d, "ldap", 3000, []uint32{3000, 3001, 10}},
		{&files, "ada", 100, []uint32{100, 10}},
	} {
		if got, err := c.of.GroupsOf(t.Context(), c.name, c.gid); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for gid, want := range map[uint32]string{100: "users", 3000: "staff"} {
		if got, err := d.GroupName(t.Context(), gid); err != nil || got != want {
			t.Errorf("%d: %q, %v", gid, got, err)
		}
	}
	if _, err := d.GroupName(t.Context(), 9); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
}

// TestHangingDatabase: a lookup ends in time and leaves no process behind that holds
// it up.
func TestHangingDatabase(t *testing.T) {
	d := site(t, "sleep 1000 &\nwait\n")
	d.Limit = 50 * time.Millisecond
	if _, err := d.ByUID(t.Context(), 2000); !errors.Is(err, ErrSlow) {
		t.Errorf("%v", err)
	}
	if groups, err := d.GroupsOf(t.Context(), "ada", 100); !errors.Is(err, ErrSlow) || !slices.Equal(groups, []uint32{100, 10}) {
		t.Errorf("%v, %v", groups, err)
	}
}

// TestEnvironmentOfALogin: pam_exec gives a program no PATH, or one of the user's. Neither it nor
// another variable of a login decides what is run.
func TestEnvironmentOfALogin(t *testing.T) {
	here := System(time.Minute)
	users := site(t, `echo 'root:x:0:0::/mine:/bin/sh'`)
	for _, path := range []string{"", filepath.Dir(users.Getent)} {
		t.Setenv("PATH", path)
		if got := System(time.Minute); got != here {
			t.Errorf("PATH=%s: %+v, want %+v", path, got, here)
		}
	}
	t.Setenv("LD_PRELOAD_OF_A_USER", "mine")
	d := site(t, `echo "odd:x:2000:1::/$LD_PRELOAD_OF_A_USER:/bin/sh"`)
	if got, err := d.ByUID(t.Context(), 2000); err != nil || got.Home != "/" {
		t.Errorf("getent has the variables of the login: %+v, %v", got, err)
	}
}

// TestThisMachine: the real getent is understood.
func TestThisMachine(t *testing.T) {
	d := System(time.Minute)
	d.Passwd, d.Group = "/dev/null", "/dev/null"
	if d.Getent == "" {
		t.Skip("there is no getent here")
	}
	root, err := d.ByUID(t.Context(), 0)
	if err != nil || root.Name != "root" || root.Home != "/root" || root.Shell == "" {
		t.Errorf("%+v, %v", root, err)
	}
	if name, err := d.GroupName(t.Context(), 0); err != nil || name != "root" {
		t.Errorf("%q, %v", name, err)
	}
	if groups, err := d.GroupsOf(t.Context(), "root", 0); err != nil || groups[0] != 0 {
		t.Errorf("%v, %v", groups, err)
	}
}

// TestAccounts: a user is looked up once for all that wait, an answer is kept, and
// one that hangs delays nobody else.
func TestAccounts(t *testing.T) {
	d := site(t, `echo $2 >>"$0.asked"
case $2 in
2000) while ! test -e "$0.go"; do sleep 0.01; done; echo 'slow:*:2000:1::/slow:';;
3000) echo 'quick:*:3000:1::/quick:';;
5000) exit 1;;
*) exit 2;;
esac
`)
	accounts := NewAccounts(d)
	const waiting = 5
	slow := make(chan string, waiting)
	for range waiting {
		go func() {
			a, err := accounts.Find(context.Background(), 2000)
			if err != nil {
				a.Home = err.Error()
			}
			slow <- a.Home
		}()
	}
	for range 2 {
		if a, err := accounts.Find(t.Context(), 3000); err != nil || a.Home != "/quick" {
			t.Errorf("%+v, %v", a, err)
		}
		if _, err := accounts.Find(t.Context(), 4000); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
		if _, err := accounts.Find(t.Context(), 5000); err == nil || errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := accounts.Find(gone, 2000); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(d.Getent+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range waiting {
		if home := <-slow; home != "/slow" {
			t.Error(home)
		}
	}
	asked, err := os.ReadFile(d.Getent + ".asked")
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string]int{"2000": 1, "3000": 1, "4000": 1, "5000": 2} {
		if n := strings.Count(string(asked), uid); n != want {
			t.Errorf("%s was looked up %d times, want %d", uid, n, want)
		}
	}
}
