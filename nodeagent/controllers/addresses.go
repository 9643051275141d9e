package controllers

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// OnThisHost tells an address of this very machine, by what the resolver and
// the interfaces say.
func OnThisHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(found, func(ip net.IPAddr) bool {
		return ip.IP.IsLoopback() || slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		})
	})
}

// NearestAddress is the address under which the host of the first controller that is
// reached over a network can reach this one; empty where none is.
func NearestAddress(addresses []string) string {
	for _, a := range RemoteAddresses(addresses) {
		conn, err := net.DialTimeout(
			"udp",
			a,
			2*time.Second,
		) // asks the routing table, and sends nothing
		if err != nil {
			continue
		}
		local := conn.LocalAddr()
		_ = conn.Close()
		if u, ok := local.(*net.UDPAddr); ok && !u.IP.IsUnspecified() && !u.IP.IsLoopback() {
			return u.IP.String()
		}
	}
	return ""
}

// RemoteAddresses are the addresses that are not a socket on this host.
func RemoteAddresses(addresses []string) []string {
	return slices.DeleteFunc(
		slices.Clone(addresses),
		func(a string) bool { return strings.Contains(a, "/") },
	)
}
