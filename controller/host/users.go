package host

import (
	"os/user"
	"strconv"
)

// FindUser finds a user of this host by name.
func FindUser(name string) (uid, gid uint32, ok bool) {
	account, err := user.Lookup(name)
	if err != nil {
		return 0, 0, false
	}
	u, uerr := strconv.ParseUint(account.Uid, 10, 32)
	g, gerr := strconv.ParseUint(account.Gid, 10, 32)
	return uint32(u), uint32(g), uerr == nil && gerr == nil
}
