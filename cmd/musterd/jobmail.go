package main

import (
	"context"
	"os"

	"github.com/musterhpc/muster/internal/program"
)

// hostMail is the mail program of this host, which Slurm's MailProg is by default.
func hostMail() string {
	for _, path := range []string{"/usr/bin/mail", "/bin/mail"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// mailProgram runs MailProg as SlurmUser.
func (s *server) mailProgram(ctx context.Context, file string, args, environ []string) error {
	as, err := slurmUser(s.cluster.SlurmUser)
	if err != nil {
		return err
	}
	return program.Run(
		ctx,
		file,
		append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, environ...),
		as,
		args...)
}
