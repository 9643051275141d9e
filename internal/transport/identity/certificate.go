package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Scheme is the scheme of the URI that names a party in its certificate:
// muster://CLUSTER/ROLE/NAME.
const Scheme = "muster"

// ErrCertificate is wrapped when a certificate, though signed by the right authority, names no
// party of this cluster.
var ErrCertificate = errors.New("certificate names no party of this cluster")

// Name is a party as its certificate names it.
type Name struct {
	Cluster string
	Role    Kind // Agent, Login, Controller or Admin
	Name    string
}

// URI returns the name as it stands in a certificate. It fails for a role without certificates
// and for names that are not made of letters, digits, '.', '_' and '-' (1 to 253 of them).
func (n Name) URI() (*url.URL, error) {
	switch n.Role {
	case Agent, Login, Controller, Admin:
	default:
		return nil, fmt.Errorf("%w: role %s has no certificate", ErrCertificate, n.Role)
	}
	if !plain(n.Cluster) || !plain(n.Name) {
		return nil, fmt.Errorf(
			"%w: cluster %q, name %q: use letters, digits, '.', '_', '-'",
			ErrCertificate,
			n.Cluster,
			n.Name,
		)
	}
	return &url.URL{
		Scheme: Scheme,
		Host:   n.Cluster,
		Path:   "/" + n.Role.String() + "/" + n.Name,
	}, nil
}

func plain(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z',
			'A' <= c && c <= 'Z',
			'0' <= c && c <= '9',
			c == '.',
			c == '_',
			c == '-':
		default:
			return false
		}
	}
	return 0 < len(text) && len(text) <= 253
}

// ParseURI is the inverse of Name.URI; anything URI would not write is refused.
func ParseURI(address *url.URL) (Name, error) {
	parts := strings.Split(address.Path, "/")
	if address.Scheme != Scheme || len(parts) != 3 || parts[0] != "" {
		return Name{}, fmt.Errorf(
			"%w: %q is not %s://cluster/role/name",
			ErrCertificate,
			address.Redacted(),
			Scheme,
		)
	}
	name := Name{Cluster: address.Host, Name: parts[2]}
	for _, k := range []Kind{Agent, Login, Controller, Admin} {
		if k.String() == parts[1] {
			name.Role = k
		}
	}
	canonical, err := name.URI()
	if err != nil {
		return Name{}, err
	}
	if canonical.String() != address.String() {
		return Name{}, fmt.Errorf(
			"%w: %q is not in canonical form", ErrCertificate, address.Redacted(),
		)
	}
	return name, nil
}

// FromCertificate returns the identity in a leaf certificate whose chain the caller has
// verified already. The certificate must hold exactly one muster:// URI, and of this cluster.
func FromCertificate(cert *x509.Certificate, cluster string) (Identity, error) {
	var name Name
	found := 0
	for _, address := range cert.URIs {
		if address.Scheme != Scheme {
			continue
		}
		n, err := ParseURI(address)
		if err != nil {
			return Nameless(), err
		}
		name = n
		found++
	}
	if found != 1 {
		return Nameless(), fmt.Errorf("%w: %d %s URIs in it, want 1", ErrCertificate, found, Scheme)
	}
	if name.Cluster != cluster {
		return Nameless(), fmt.Errorf(
			"%w: it is of cluster %q, this is %q",
			ErrCertificate,
			name.Cluster,
			cluster,
		)
	}
	identity := Identity{
		Kind:     name.Role,
		UID:      NoID,
		GID:      NoID,
		Cluster:  name.Cluster,
		Serial:   cert.SerialNumber.Text(16),
		NotAfter: cert.NotAfter,
	}
	if name.Role == Admin {
		identity.User = name.Name
	} else {
		identity.Node = name.Name
	}
	return identity, nil
}
