package x11

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestParseDisplay(t *testing.T) {
	for _, tc := range []struct {
		text string
		want string // network and address of each, or the end of the error
	}{
		{":0", "unix /tmp/.X11-unix/X0, unix @/tmp/.X11-unix/X0"},
		{"unix:1.0", "unix /tmp/.X11-unix/X1, unix @/tmp/.X11-unix/X1"},
		{"localhost:10.0", "tcp localhost:6010"},
		{"tcp/login1:3", "tcp login1:6003"},
		{"[::1]:11.0", "tcp [::1]:6011"},
		{"/private/tmp/launch/org.xquartz:0", "unix /private/tmp/launch/org.xquartz:0"},
		{"", "DISPLAY is not set"},
		{"login1", "expected HOST:NUMBER"},
		{"login1:x", "invalid number"},
		{"login1:99999", "invalid number"},
	} {
		list, err := ParseDisplay(tc.text)
		var parts []string
		for _, a := range list {
			parts = append(parts, a.Network+" "+a.Address)
		}
		got := strings.Join(parts, ", ")
		if err != nil {
			got = err.Error()
			if !errors.Is(err, ErrNoDisplay) {
				t.Errorf("%q: %v is not ErrNoDisplay", tc.text, err)
			}
		}
		if got != tc.want && (err == nil || !strings.HasSuffix(got, tc.want)) {
			t.Errorf("%q: %s, want %s", tc.text, got, tc.want)
		}
	}
}

func TestFindCookie(t *testing.T) {
	const list = "host/unix:0  XDM-AUTHORIZATION-1  00\nhost/unix:0  MIT-MAGIC-COOKIE-1  000102030405060708090a0b0c0d0e0f\n"
	cookie, ok := FindCookie(list)
	if !ok || cookie != (Cookie{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Errorf("%x, %v", cookie, ok)
	}
	if _, ok := FindCookie("host/unix:0  MIT-MAGIC-COOKIE-1  0001\n"); ok {
		t.Error("a cookie of two bytes is taken")
	}
}

// setupOf is the first message of a client, written beside the code that reads it.
func setupOf(order binary.ByteOrder, mark byte, name string, data []byte) []byte {
	out := make([]byte, 12)
	out[0] = mark
	order.PutUint16(out[2:], 11)
	order.PutUint16(out[6:], uint16(len(name)))
	order.PutUint16(out[8:], uint16(len(data)))
	out = append(out, name...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	out = append(out, data...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func TestSetup(t *testing.T) {
	node := Cookie{1, 2, 3}
	real := Cookie{9, 8, 7}
	for _, kind := range []struct {
		mark  byte
		order binary.ByteOrder
	}{{'l', binary.LittleEndian}, {'B', binary.BigEndian}} {
		first := setupOf(kind.order, kind.mark, protocol, node[:])
		setup, err := ReadSetup(bytes.NewReader(append(first, "what follows"...)))
		if err != nil {
			t.Fatal(err)
		}
		if !setup.Shows(node) || setup.Shows(real) {
			t.Errorf("%c: the cookie is not the one that it shows", kind.mark)
		}
		if want := setupOf(kind.order, kind.mark, protocol, real[:]); !bytes.Equal(setup.WithCookie(real), want) {
			t.Errorf("%c: %q, want %q", kind.mark, setup.WithCookie(real), want)
		}
		answer := setup.Refuse("no such cookie")
		if answer[0] != 0 || answer[1] != 14 || kind.order.Uint16(answer[6:]) != 4 || string(answer[8:22]) != "no such cookie" {
			t.Errorf("%c: refused by %q", kind.mark, answer)
		}
	}
	without, err := ReadSetup(bytes.NewReader(setupOf(binary.LittleEndian, 'l', "", nil)))
	if err != nil || without.Shows(Cookie{}) {
		t.Errorf("a client without a cookie: %v", err)
	}
	for _, bad := range [][]byte{[]byte("GET / HTTP/1.0\r\n\r\n"), setupOf(binary.LittleEndian, 'l', protocol, make([]byte, 4000)), {'l', 0}} {
		if _, err := ReadSetup(bytes.NewReader(bad)); err == nil {
			t.Errorf("%.20q is taken", bad)
		}
	}
}

// TestAuthority: the bytes that libXau reads, field by field.
func TestAuthority(t *testing.T) {
	cookie := Cookie{0xaa}
	want := append([]byte("\xff\xff\x00\x00\x00\x0210\x00\x12MIT-MAGIC-COOKIE-1\x00\x10"), cookie[:]...)
	if got := Authority(10, cookie); !bytes.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	number, read, err := ReadAuthority(want)
	if err != nil || number != 10 || read != cookie {
		t.Errorf("read again: %d, %x, %v", number, read, err)
	}
	for cut := range want {
		if _, _, err := ReadAuthority(want[:cut]); err == nil {
			t.Errorf("the first %d bytes are taken", cut)
		}
	}
}

func FuzzReadSetup(f *testing.F) {
	f.Add(setupOf(binary.LittleEndian, 'l', protocol, make([]byte, 16)))
	f.Fuzz(func(t *testing.T, data []byte) {
		setup, err := ReadSetup(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := ReadSetup(bytes.NewReader(setup.WithCookie(Cookie{1})))
		if err != nil || !again.Shows(Cookie{1}) {
			t.Errorf("%q becomes what cannot be read: %v", data, err)
		}
	})
}
