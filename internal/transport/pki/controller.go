package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// ErrNoAuthority is wrapped when a host would renew a controller's certificate and has no
// authority's key, as a witness.
var ErrNoAuthority = errors.New("this host does not have the key of the cluster's authority")

// RenewController makes the next certificate of this controller by the authority's key in the
// same folder, once two thirds of the present one's life have passed; also of one that has
// expired. It returns whether it did. The new one has the same name, and is valid for the same
// addresses. Hosts that are no controllers are left alone: they ask a controller.
func (d Dir) RenewController(now time.Time) (renewed bool, err error) {
	host, err := d.Host()
	if err != nil {
		return false, err
	}
	if now.Before(RenewAfter(host.Leaf.NotBefore, host.Leaf.NotAfter)) {
		return false, nil
	}
	self, err := identity.FromCertificate(host.Leaf, clusterOf(host.Authority))
	if err != nil {
		return false, fmt.Errorf("%s: %w", d, err)
	}
	if self.Kind != identity.Controller {
		return false, nil
	}
	if _, err := os.Lstat(d.pathOf(CAKeyFile)); errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s: %w", d.pathOf(CAKeyFile), ErrNoAuthority)
	}
	ca, err := d.CA()
	if err != nil {
		return false, err
	}
	holder := Holder{Role: identity.Controller, Name: self.Node, Hosts: host.Leaf.DNSNames}
	for _, ip := range host.Leaf.IPAddresses {
		holder.Hosts = append(holder.Hosts, ip.String())
	}
	pair, err := ca.Issue(holder, now)
	if err != nil {
		return false, err
	}
	return true, d.SaveHost(pair)
}
