// Package munge lets users in by credentials of MUNGE, the service of sites that came from Slurm:
// its library (libmunge) asks the munged of the host, which has the cluster's munge.key.
//
// A credential is made for one connection: its payload is the TLS channel binding of that
// connection, so that it cannot be used on another one. It is decoded once, and MUNGE refuses it a second
// time. The library is loaded when it is needed, as the ClickHouse engine is.
package munge

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ErrMissing tells that MUNGE cannot be asked on this host.
var ErrMissing = errors.New("MUNGE is not on this host")

// ErrCredential is wrapped by every refusal of a credential.
var ErrCredential = errors.New("the MUNGE credential is not valid")

// names of the library, as Debian and others install it.
var names = []string{"libmunge.so.2", "libmunge.so"}

// What munge.h numbers.
const (
	optTTL    = 4
	optSocket = 8

	success      = 0
	noSocket     = 6
	timeout      = 7
	credInvalid  = 14
	credExpired  = 15
	credRewound  = 16
	credReplayed = 17
	credOther    = 18
)

// credentialLife is how long a credential may be on its way, in seconds.
const credentialLife = 60

// Library is libmunge. It is safe for several goroutines.
type Library struct {
	socket string // of munged; empty = the library's own

	create  func() uintptr
	destroy func(ctx uintptr)
	setText func(ctx uintptr, option int32, value *byte) int32
	setInt  func(ctx uintptr, option int32, value int32) int32
	encode  func(credential *uintptr, ctx uintptr, payload *byte, length int32) int32
	decode  func(credential *byte, ctx uintptr, payload *uintptr, length *int32, uid, gid *uint32) int32
	text    func(code int32) string
	free    func(memory uintptr)
}

var load = sync.OnceValues(func() (*Library, error) {
	var handle uintptr
	var err error
	for _, name := range names {
		handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	library := &Library{}
	for name, into := range map[string]any{
		"munge_ctx_create": &library.create, "munge_ctx_destroy": &library.destroy,
		"munge_encode": &library.encode,
		"munge_decode": &library.decode, "munge_strerror": &library.text,
	} {
		address, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%w: its library is another one: %w", ErrMissing, err)
		}
		purego.RegisterFunc(into, address)
	}
	set, err := purego.Dlsym(handle, "munge_ctx_set")
	if err != nil {
		return nil, fmt.Errorf("%w: its library is another one: %w", ErrMissing, err)
	}
	purego.RegisterFunc(&library.setText, set)
	purego.RegisterFunc(&library.setInt, set)
	release, err := purego.Dlsym(purego.RTLD_DEFAULT, "free")
	if err != nil {
		return nil, fmt.Errorf("the C library: %w", err)
	}
	purego.RegisterFunc(&library.free, release)
	return library, nil
})

// Open loads the library. socket is that of munged, as AuthInfo=socket= names it; empty = the
// library's own.
func Open(socket string) (*Library, error) {
	library, err := load()
	if err != nil {
		return nil, err
	}
	opened := *library
	opened.socket = socket
	return &opened, nil
}

// context makes what the library keeps of one question.
func (l *Library) context(life int32) (uintptr, error) {
	ctx := l.create()
	if ctx == 0 {
		return 0, errors.New("MUNGE: no memory")
	}
	code := int32(success)
	if l.socket != "" {
		path := cString(l.socket)
		code = l.setText(ctx, optSocket, &path[0])
		runtime.KeepAlive(path)
	}
	if code == success && life > 0 {
		code = l.setInt(ctx, optTTL, life)
	}
	if code != success {
		l.destroy(ctx)
		return 0, l.failure(code)
	}
	return ctx, nil
}

// Encode makes a credential of the user of this process.
func (l *Library) Encode(payload string) (string, error) {
	return l.encodeFor(credentialLife, payload)
}

// encodeFor makes a credential that lives for some seconds.
func (l *Library) encodeFor(life int32, payload string) (string, error) {
	ctx, err := l.context(life)
	if err != nil {
		return "", err
	}
	defer l.destroy(ctx)
	data := cString(payload)
	var credential uintptr
	code := l.encode(&credential, ctx, &data[0], int32(len(payload)))
	runtime.KeepAlive(data)
	if code != success {
		return "", l.failure(code)
	}
	defer l.free(credential)
	return goString(credential), nil
}

// Decode tells who made a credential and for what. It does so once for each credential.
func (l *Library) Decode(credential string) (payload string, uid, gid uint32, err error) {
	ctx, err := l.context(0)
	if err != nil {
		return "", 0, 0, err
	}
	defer l.destroy(ctx)
	text := cString(credential)
	var data uintptr
	var length int32
	code := l.decode(&text[0], ctx, &data, &length, &uid, &gid)
	runtime.KeepAlive(text)
	if data != 0 {
		defer l.free(data)
	}
	if code != success {
		return "", 0, 0, l.failure(code)
	}
	return string(bytesAt(data, int(length))), uid, gid, nil
}

// failure is the library's word with what to do about it.
func (l *Library) failure(code int32) error {
	text := l.text(code)
	socket := l.socket
	if socket == "" {
		socket = "its usual socket"
	}
	switch code {
	case noSocket, timeout:
		return fmt.Errorf(
			"%w: munged does not answer at %s (%s): start it; it refuses a munge.key that others may read, and its log says so",
			ErrMissing, socket, text)
	case credInvalid:
		return fmt.Errorf("%w: %s: the munge.key of the two hosts is not the same", ErrCredential, text)
	case credExpired, credRewound:
		return fmt.Errorf("%w: %s: the clocks of the two hosts are apart", ErrCredential, text)
	case credReplayed, credOther:
		return fmt.Errorf("%w: %s", ErrCredential, text)
	}
	return fmt.Errorf("%w: %s", ErrCredential, text)
}

func cString(text string) []byte { return append([]byte(text), 0) }

// goString copies a text of the C library.
func goString(at uintptr) string {
	length := 0
	for bytesAt(at, length+1)[length] != 0 {
		length++
	}
	return string(bytesAt(at, length))
}

// bytesAt is memory of the C library, which does not move.
func bytesAt(at uintptr, length int) []byte {
	if at == 0 || length == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), length)
}
