package oidc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Users maps what the provider says of somebody to a user of this host.
type Users struct {
	// Claim holds the name; empty means preferred_username.
	Claim string
	// Pattern, if set, must match the whole claim, and its first group is the user:
	// ^(.+)@example\\.org$ makes ann of ann@example.org.
	Pattern *regexp.Regexp
	// Map, if set, is a file of lines with a claim's value and a user. Who is not in it is
	// nobody. It is read again when it changes.
	Map *Map
}

// ErrNoUser tells that the provider knows somebody who is no user here.
var ErrNoUser = errors.New("the identity provider's word names no user of this cluster")

// userClaim is the name of the claim that holds the user.
func (u *Users) userClaim() string {
	if u.Claim == "" {
		return "preferred_username"
	}
	return u.Claim
}

// ParsePattern compiles a pattern, which must match a whole claim and have the user as its
// first group.
func ParsePattern(text string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, err
	}
	if pattern.NumSubexp() != 1 {
		return nil, fmt.Errorf("%q has %d groups: put the user's name, and nothing else, in parentheses",
			text, pattern.NumSubexp())
	}
	return pattern, nil
}

// Name is the user whom claims mean.
func (u *Users) Name(claims map[string]any) (string, error) {
	name := u.userClaim()
	value, _ := claims[name].(string)
	if value == "" {
		return "", fmt.Errorf("%w: there is no claim %s", ErrNoUser, name)
	}
	// Whoever may type an address of his own at the provider could be anybody by it.
	if name == "email" && claims["email_verified"] != true {
		return "", fmt.Errorf("%w: the address %q is not verified", ErrNoUser, value)
	}
	if u.Map != nil {
		return u.Map.find(value)
	}
	if u.Pattern == nil {
		return value, nil
	}
	found := u.Pattern.FindStringSubmatch(value)
	if found == nil || found[1] == "" {
		return "", fmt.Errorf("%w: %s %q does not match oidc.user_pattern", ErrNoUser, name, value)
	}
	return found[1], nil
}

// Map is a file of lines with a claim's value and a user.
type Map struct {
	path string

	mu    sync.Mutex
	users map[string]string
	read  time.Time // when the file was written that users are from
}

// OpenMap reads a map; a broken one is refused.
func OpenMap(path string) (*Map, error) {
	m := &Map{path: path}
	_, err := m.current()
	return m, err
}

// find is the user of a claim's value.
func (m *Map) find(value string) (string, error) {
	users, err := m.current()
	if err != nil {
		return "", err
	}
	if users[value] == "" {
		return "", fmt.Errorf("%w: %q is not in %s", ErrNoUser, value, m.path)
	}
	return users[value], nil
}

// current is the map as the file has it. A file that is broken leaves what was read before; one
// that is gone ends all of it, as a file without lines would.
func (m *Map) current() (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	info, err := os.Stat(m.path)
	if err != nil {
		return nil, fmt.Errorf("oidc.user_map: %w", err)
	}
	if m.users != nil && info.ModTime().Equal(m.read) {
		return m.users, nil
	}
	data, err := os.ReadFile(m.path)
	if err != nil {
		return nil, fmt.Errorf("oidc.user_map: %w", err)
	}
	users, err := parseMap(data)
	if err != nil && m.users == nil {
		return nil, fmt.Errorf("oidc.user_map, %s: %w", m.path, err)
	}
	if err == nil {
		m.users = users
		m.read = info.ModTime()
	}
	return m.users, nil
}

// parseMap reads lines of two words; # begins a comment.
func parseMap(data []byte) (map[string]string, error) {
	out := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		switch {
		case len(words) == 0:
			continue
		case len(words) != 2:
			return nil, fmt.Errorf("line %d: expected a value and a user, as in 00u1abc ann", n)
		case out[words[0]] != "":
			return nil, fmt.Errorf("line %d: %q is there twice", n, words[0])
		}
		out[words[0]] = words[1]
	}
	return out, lines.Err()
}
