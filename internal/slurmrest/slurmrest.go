// Package slurmrest asks a slurmrestd, Slurm's own REST service, for its pages.
// What they say is read where it is used: the exporter reads queues and nodes,
// the importer accounting.
package slurmrest

import (
	"context"
	"net"
	"net/http"
	"strings"
)

// Client is one slurmrestd. It may be used by several goroutines.
type Client struct {
	base, user string
	http       http.Client
}

// New makes a client of http://host:6820, https://host:6820 or unix:/path. The
// user is whose token is sent, where the token does not say it.
func New(address, user string) *Client {
	client := &Client{base: strings.TrimRight(address, "/"), user: user}
	client.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for nobody else
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		client.base = "http://slurmrestd"
		client.http.Transport = &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}
	}
	return client
}

// Get asks for a page, with its query, in JSON. The token is one of auth/jwt, as
// scontrol token prints it or bare; a socket needs none. Whatever the status is,
// the caller closes the body.
func (c *Client) Get(ctx context.Context, page, token string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+page, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if c.user != "" {
		request.Header.Set("X-SLURM-USER-NAME", c.user)
	}
	token = strings.TrimPrefix(strings.TrimSpace(token), "SLURM_JWT=")
	if token != "" {
		request.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	return c.http.Do(request)
}
