package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// FetchHolds asks the controllers in turn what other schedulers have on a node; only the
// one that leads answers.
func (c *Controllers) FetchHolds(ctx context.Context, node string) ([]*apiv1.ForeignHold, error) {
	var errs []error
	for range c.addresses {
		client, address, err := c.CurrentClient()
		if err == nil {
			var reply *apiv1.NodeHoldsReply
			reply, err = client.Holds(ctx, &apiv1.NodeHoldsRequest{Node: node})
			if err == nil {
				return reply.GetHolds(), nil
			}
		}
		errs = append(errs, fmt.Errorf("controller %s: %w", address, err))
		if ctx.Err() != nil {
			break
		}
		c.noteFailed(address)
	}
	return nil, errors.Join(errs...)
}

// FetchConfiguration asks the controllers in turn.
func FetchConfiguration(
	ctx context.Context,
	addresses []string,
	source *pki.Source,
) (*apiv1.ConfigurationReply, error) {
	var errs []error
	for _, a := range addresses {
		conn, err := dialController(a, source)
		if err != nil {
			return nil, err
		}
		patience, cancel := context.WithTimeout(ctx, 10*time.Second)
		reply, err := service.NewAgentsClient(conn).
			Configuration(patience, &apiv1.ConfigurationRequest{})
		cancel()
		_ = conn.Close()
		if err == nil {
			return reply, nil
		}
		errs = append(errs, fmt.Errorf("controller %s: %w", a, err))
	}
	return nil, errors.Join(errs...)
}
