package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type resolverFunc func(uid uint32) (string, error)

func (f resolverFunc) UserName(_ context.Context, uid uint32) (string, error) { return f(uid) }

func TestCacheBoundAndAge(t *testing.T) {
	now := time.Unix(1000, 0)
	asked := map[uint32]int{}
	c := NewCache(resolverFunc(func(uid uint32) (string, error) {
		asked[uid]++
		switch uid {
		case 98:
			return "", errors.New("directory is down")
		case 99:
			return "", fmt.Errorf("uid 99: %w", ErrNoUser)
		}
		return fmt.Sprintf("u%d", uid), nil
	}), 3, time.Minute, func() time.Time { return now })

	get := func(uid uint32) (string, error) { return c.UserName(t.Context(), uid) }
	for range 5 {
		for _, uid := range []uint32{1, 2, 99} {
			name, err := get(uid)
			if uid == 99 && !errors.Is(err, ErrNoUser) || uid != 99 && name != fmt.Sprintf("u%d", uid) {
				t.Fatalf("uid %d: %q, %v", uid, name, err)
			}
		}
		if _, err := get(98); err == nil || errors.Is(err, ErrNoUser) {
			t.Fatalf("failure: %v", err)
		}
	}
	if asked[1] != 1 || asked[2] != 1 || asked[99] != 1 || asked[98] != 5 {
		t.Errorf("asked %v: answers are remembered, failures are not", asked)
	}
	for uid := range uint32(50) {
		if _, err := get(uid); err != nil {
			t.Fatal(err)
		}
		if c.Len() > 3 {
			t.Fatalf("%d answers held", c.Len())
		}
	}
	asked[49] = 0
	if get(49); asked[49] != 0 {
		t.Error("a fresh answer was asked for again")
	}
	now = now.Add(time.Minute)
	if get(49); asked[49] != 1 {
		t.Error("an old answer was believed")
	}
}

func TestFindUser(t *testing.T) {
	const text = "# local\nroot:x:0:0:root:/root:/bin/sh\n\nbad\n+::::::\n:x:7:7::/:\nada:x:1000:100:Ada,,,:/home/ada:/bin/sh\nneg:x:-1:1\nbig:x:4294967296:1\ntwin:x:1000:1\n"
	for uid, want := range map[uint32]string{0: "root", 1000: "ada"} {
		if got, err := FindUser(strings.NewReader(text), uid); err != nil || got != want {
			t.Errorf("%d: %q, %v", uid, got, err)
		}
	}
	for _, uid := range []uint32{7, 1, NoID} {
		if got, err := FindUser(strings.NewReader(text), uid); !errors.Is(err, ErrNoUser) {
			t.Errorf("%d: %q, %v", uid, got, err)
		}
	}
}

func FuzzFindUser(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n", uint32(0))
	f.Fuzz(func(t *testing.T, text string, uid uint32) {
		if name, err := FindUser(strings.NewReader(text), uid); err == nil && (name == "" || strings.ContainsAny(name, ":\n")) {
			t.Fatalf("%q", name)
		}
	})
}

func TestPasswdAsksGetent(t *testing.T) {
	dir := t.TempDir()
	file, getent := filepath.Join(dir, "passwd"), filepath.Join(dir, "getent")
	if err := os.WriteFile(file, []byte("ada:x:1000:100\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n[ \"$1 $2\" = 'passwd 2000' ] && { echo 'ldap:*:2000:1::/:/bin/sh'; exit 0; }\n[ \"$2\" = 3000 ] && exit 1\nexit 2\n"
	if err := os.WriteFile(getent, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := Passwd{File: file, Getent: getent, Limit: time.Hour}
	for uid, want := range map[uint32]string{1000: "ada", 2000: "ldap"} {
		if got, err := p.UserName(t.Context(), uid); err != nil || got != want {
			t.Errorf("%d: %q, %v", uid, got, err)
		}
	}
	if _, err := p.UserName(t.Context(), 4000); !errors.Is(err, ErrNoUser) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := p.UserName(t.Context(), 3000); err == nil || errors.Is(err, ErrNoUser) {
		t.Errorf("a failing getent: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.UserName(ended, 2000); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if _, err := (Passwd{File: file}).UserName(t.Context(), 2000); !errors.Is(err, ErrNoUser) {
		t.Errorf("without getent: %v", err)
	}
	if _, err := (Passwd{File: filepath.Join(dir, "none")}).UserName(t.Context(), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if name, err := SystemPasswd().UserName(t.Context(), 0); err != nil || name == "" {
		t.Errorf("root here: %q, %v", name, err)
	}
}
