package munge

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Payload is what a credential holds that is made for a connection.
func Payload(binding string) string { return "muster/1 " + binding }

// Node is where users are from who came by MUNGE: it does not prove a host.
const Node = "munge"

// Decoder tells who made a credential and for what: a Library.
type Decoder interface {
	Decode(credential string) (payload string, uid, gid uint32, err error)
}

// maxKnown is how many connections are remembered at least. Nobody tells the door when one has
// ended, and a credential that was forgotten cannot be decoded again: those are forgotten that
// have asked nothing for longest. A connection that lives on stays known, however old it is.
const maxKnown = 20_000

// Door lets users in by credentials. It is safe for several goroutines.
type Door struct {
	decoder Decoder
	most    int

	// decoding is held while munged is asked; who is known does not wait for it.
	decoding sync.Mutex

	mu sync.Mutex
	// recent and older are those who were let in, by connection and credential. Who asks moves
	// to recent; once that is full it becomes the older, and what was left there is forgotten.
	recent, older map[[sha256.Size]byte]identity.Identity
}

// NewDoor makes a door.
func NewDoor(decoder Decoder) *Door {
	return &Door{decoder: decoder, most: maxKnown, recent: map[[sha256.Size]byte]identity.Identity{}}
}

// Admit tells whose a credential is that was shown on a connection. Each request of a connection
// shows the same one; it is decoded with the first.
//
// Whoever is root on any host with the munge.key can say that he is anybody. So such a user counts
// as one for whom a compute node vouches: he has no rights over others' affairs, gets no
// token, and root is nobody.
func (d *Door) Admit(credential, binding string) (identity.Identity, error) {
	if binding == "" {
		return identity.Nameless(), fmt.Errorf("%w: it is shown on a connection that needs none", ErrCredential)
	}
	key := sha256.Sum256([]byte(binding + "\x00" + credential))
	if id, ok := d.find(key); ok {
		return id, nil
	}
	d.decoding.Lock()
	defer d.decoding.Unlock()
	if id, ok := d.find(key); ok { // by another request of the connection, meanwhile
		return id, nil
	}
	payload, uid, gid, err := d.decoder.Decode(credential)
	if err != nil {
		return identity.Nameless(), err
	}
	if subtle.ConstantTimeCompare([]byte(payload), []byte(Payload(binding))) != 1 {
		return identity.Nameless(), fmt.Errorf("%w: it was made for another connection", ErrCredential)
	}
	if uid == identity.NoID || gid == identity.NoID {
		return identity.Nameless(), fmt.Errorf("%w: it names no user", ErrCredential)
	}
	id := identity.Identity{Kind: identity.AttestedUser, UID: uid, GID: gid, Node: Node, By: identity.Agent}
	if uid == 0 {
		id.UID = identity.Nobody
		id.GID = identity.Nobody
		id.Squashed = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remember(key, id)
	return id, nil
}

// find is who was let in on a connection before.
func (d *Door) find(key [sha256.Size]byte) (identity.Identity, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := d.recent[key]; ok {
		return id, true
	}
	id, ok := d.older[key]
	if ok {
		d.remember(key, id)
	}
	return id, ok
}

// remember notes that somebody has asked. The caller holds mu.
func (d *Door) remember(key [sha256.Size]byte, id identity.Identity) {
	if len(d.recent) >= d.most {
		d.older = d.recent
		d.recent = map[[sha256.Size]byte]identity.Identity{}
	}
	d.recent[key] = id
}
