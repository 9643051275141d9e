// Package nss asks the machine's user databases: /etc/passwd and /etc/group, and
// through getent whatever nsswitch.conf names besides, such as LDAP or SSSD.
//
// A database that hangs is the ordinary trouble: a lookup is therefore a process
// that can be killed, and never a call of the C library, which holds a thread for as
// long as it likes.
package nss

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrUnknown is wrapped when no database has what was looked up.
var ErrUnknown = errors.New("not known on this machine")

// ErrSlow is wrapped when a database did not answer in time.
var ErrSlow = errors.New("the user database did not answer in time")

// Account is a line of passwd(5).
type Account struct {
	Name  string
	UID   uint32
	GID   uint32
	Home  string
	Shell string // empty: /bin/sh
}

// Databases are where accounts and groups are looked up.
type Databases struct {
	Passwd string        // file; usually /etc/passwd
	Group  string        // file; usually /etc/group
	Getent string        // path of getent; empty: only the files count
	Limit  time.Duration // how long getent may take
}

// System are the databases of this machine.
func System(limit time.Duration) Databases {
	databases := Databases{Passwd: "/etc/passwd", Group: "/etc/group", Limit: limit}
	for _, folder := range strings.Split(systemPath, ":") {
		path, err := exec.LookPath(folder + "/getent")
		if err == nil {
			databases.Getent = path
			break
		}
	}
	return databases
}

// systemPath is where getent is, and its PATH. That of the calling process does not count: pam_exec
// runs a program without one, or with one that the user who logs in has a say in. The last folder
// is NixOS's.
const systemPath = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/run/current-system/sw/bin"

// ByUID finds an account by its number.
func (d *Databases) ByUID(ctx context.Context, uid uint32) (Account, error) {
	number := strconv.FormatUint(uint64(uid), 10)
	return d.account(ctx, number, func(a *Account) bool { return a.UID == uid })
}

// ByName finds an account by its name.
func (d *Databases) ByName(ctx context.Context, name string) (Account, error) {
	return d.account(ctx, name, func(a *Account) bool { return a.Name == name })
}

func (d *Databases) account(
	ctx context.Context,
	key string,
	fits func(*Account) bool,
) (Account, error) {
	file, err := os.Open(d.Passwd)
	if err == nil {
		defer file.Close()
		var found Account
		found, err = findAccount(file, fits)
		if err == nil {
			return found, nil
		}
	}
	if d.Getent == "" {
		return Account{}, fmt.Errorf("account %s: %w", key, err)
	}
	text, err := d.ask(ctx, "passwd", key)
	if err != nil {
		return Account{}, fmt.Errorf("account %s: %w", key, err)
	}
	found, err := findAccount(strings.NewReader(text), fits)
	if err != nil {
		return Account{}, fmt.Errorf("account %s: %w", key, err)
	}
	return found, nil
}

// GroupName is the name of a group.
func (d *Databases) GroupName(ctx context.Context, gid uint32) (string, error) {
	number := strconv.FormatUint(uint64(gid), 10)
	file, err := os.Open(d.Group)
	if err == nil {
		defer file.Close()
		var name string
		name, err = findGroup(file, number)
		if err == nil {
			return name, nil
		}
	}
	if d.Getent == "" {
		return "", fmt.Errorf("group %s: %w", number, err)
	}
	text, err := d.ask(ctx, "group", number)
	if err != nil {
		return "", fmt.Errorf("group %s: %w", number, err)
	}
	name, err := findGroup(strings.NewReader(text), number)
	if err != nil {
		return "", fmt.Errorf("group %s: %w", number, err)
	}
	return name, nil
}

// GroupsOf are all groups of a user whose own group is gid, which comes first. A
// user can be in groups of several databases, so that getent is asked where it is
// installed. With an error the list holds what the file says.
func (d *Databases) GroupsOf(ctx context.Context, name string, gid uint32) ([]uint32, error) {
	list := []uint32{gid}
	add := func(id uint32) {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	file, err := os.Open(d.Group)
	if err == nil {
		defer file.Close()
		err = memberships(file, name, add)
	}
	if d.Getent == "" {
		return list, err
	}
	text, err := d.ask(ctx, "initgroups", name)
	if err != nil {
		return list, fmt.Errorf("groups of %s: %w", name, err)
	}
	told := strings.Fields(text)
	for _, field := range told[min(1, len(told)):] { // behind the name
		if id, err := strconv.ParseUint(field, 10, 32); err == nil {
			add(uint32(id))
		}
	}
	return list, nil
}

// getentUnknown is the exit code with which getent says that a key is not there.
const getentUnknown = 2

func (d *Databases) ask(ctx context.Context, database, key string) (string, error) {
	if strings.HasPrefix(key, "-") || key == "" {
		return "", ErrUnknown // getent would take it for an option, or list everything
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Limit, ErrSlow)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Getent, database, key)
	cmd.Env = []string{"PATH=" + systemPath}
	// What a module of the databases has started ends too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &exit) && exit.ExitCode() == getentUnknown:
		return "", ErrUnknown
	case err != nil:
		return "", fmt.Errorf("getent %s: %w", database, err)
	}
	return string(out), nil
}

// Fields of a line of passwd(5) and group(5).
const (
	passwdFields = 7
	groupFields  = 4
)

// findAccount reads lines of passwd(5); those of another form are skipped.
func findAccount(r io.Reader, fits func(*Account) bool) (Account, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) != passwdFields || field[0] == "" || strings.ContainsAny(field[0][:1], "#+-") {
			continue
		}
		uid, uidErr := strconv.ParseUint(field[2], 10, 32)
		gid, gidErr := strconv.ParseUint(field[3], 10, 32)
		if uidErr != nil || gidErr != nil {
			continue
		}
		account := Account{
			Name:  field[0],
			UID:   uint32(uid),
			GID:   uint32(gid),
			Home:  field[5],
			Shell: field[6],
		}
		if fits(&account) {
			return account, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Account{}, err
	}
	return Account{}, ErrUnknown
}

// findGroup reads lines of group(5) for a number.
func findGroup(r io.Reader, number string) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) == groupFields && field[0] != "" && field[2] == number {
			return field[0], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", ErrUnknown
}

// memberships reads lines of group(5) for the groups that name a user.
func memberships(r io.Reader, name string, add func(uint32)) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) != groupFields || !slices.Contains(strings.Split(field[3], ","), name) {
			continue
		}
		if id, err := strconv.ParseUint(field[2], 10, 32); err == nil {
			add(uint32(id))
		}
	}
	return lines.Err()
}
