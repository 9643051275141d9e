package keys

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/musterhpc/muster/internal/transport/pki"
)

// certificateEvery is how often a controller looks at its certificate. Renewal begins when a third of
// the certificate's life is left (pki.RenewAfter), so that a failure can be mended for weeks.
const certificateEvery = time.Hour

// RenewCertificate renews the certificate of this controller if it is due. A controller that was off
// while its certificate expired starts with a new one, so this comes before the
// certificate is used. That it fails is told, and is no reason not to start.
func RenewCertificate(dir pki.Dir, now time.Time, logger *slog.Logger) {
	renewed, err := dir.RenewController(now)
	switch {
	case renewed && err == nil:
		logger.Info("this controller's certificate was renewed", "folder", string(dir))
	case errors.Is(err, pki.ErrNoAuthority):
		logger.Warn(
			"this certificate ends before long, and a witness cannot renew its own: make one on a controller (docs/operations/controllers.md)",
			"error", err,
		)
	case err != nil:
		logger.Warn("this controller's certificate could not be renewed", "error", err)
	}
}

// KeepCertificate renews the certificate of this controller whenever it is due, and has the source use
// what lies in its folder, whoever put it there. It returns when the context ends.
func KeepCertificate(
	ctx context.Context, source *pki.Source, dir pki.Dir, logger *slog.Logger,
) error {
	ticker := time.NewTicker(certificateEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		RenewCertificate(dir, time.Now(), logger)
		if err := source.Reload(); err != nil {
			logger.Warn("this host's certificate could not be read again", "error", err)
		}
	}
}
