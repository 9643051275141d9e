package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/spec"
)

// CtlScripts run PrologSlurmctld and EpilogSlurmctld as SlurmUser, where this
// process may do that.
type CtlScripts struct{ User string }

var errTooLong = errors.New("too long")

// Run implements daemon.Scripts.
func (c CtlScripts) Run(ctx context.Context, file string, timeout spec.Span, env []string) error {
	credential, err := slurmUser(c.User)
	if err != nil {
		return err
	}
	if timeout > 0 && timeout != spec.Infinite {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(timeout), errTooLong)
		defer cancel()
	}
	err = program.Run(ctx, file, env, credential)
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		err = fmt.Errorf("it was ended after %v", time.Duration(timeout))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// slurmUser is who the site's programs run as; nil: as this process, where that
// is SlurmUser or may not become somebody else.
func slurmUser(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 || name == "" || name == "root" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("SlurmUser %s: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("SlurmUser %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("SlurmUser %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// HostMail is the mail program of this host, which Slurm's MailProg is by default.
func HostMail() string {
	for _, path := range []string{"/usr/bin/mail", "/bin/mail"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// MailProgram makes what runs MailProg credential SlurmUser, with the text of a mail to read.
func MailProgram(slurmUserName string) func(ctx context.Context, file string, args, environ []string, text string) error {
	return func(ctx context.Context, file string, args, environ []string, text string) error {
		credential, err := slurmUser(slurmUserName)
		if err != nil {
			return err
		}
		env := append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, environ...)
		return program.RunOn(ctx, strings.NewReader(text), file, env, credential, args...)
	}
}
