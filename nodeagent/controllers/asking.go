package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/mtls"
)

// FetchConfiguration asks the controllers in turn.
func FetchConfiguration(
	ctx context.Context,
	addresses []string,
	source *mtls.Source,
) (*apiv1.ConfigurationReply, error) {
	var errs []error
	for _, a := range addresses {
		conn, err := dialController(a, source)
		if err != nil {
			return nil, err
		}
		patience, cancel := context.WithTimeout(ctx, 10*time.Second)
		rep, err := service.NewAgentsClient(conn).
			Configuration(patience, &apiv1.ConfigurationRequest{})
		cancel()
		_ = conn.Close()
		if err == nil {
			return rep, nil
		}
		errs = append(errs, fmt.Errorf("controller %s: %w", a, err))
	}
	return nil, errors.Join(errs...)
}
