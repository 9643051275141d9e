package monitoring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/mailer"
)

// maxMail bounds a message.
const maxMail = 32 << 20

// serverPatience is how long a mail server may take for a message.
const serverPatience = 2 * time.Minute

var errMailUsage = errors.New(
	"usage: musterd mail --smtp HOST:PORT [--user NAME --password-file FILE] --from ADDRESS -- ADDRESS... <message",
)

// Mail is `musterd mail`: it hands a message to a mail server for
// `muster report --smtp`, which must start faster than a program that can.
func Mail(args []string, in io.Reader, errOut io.Writer) int {
	if err := sendMail(args, in); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

func sendMail(args []string, in io.Reader) error {
	flags := pflag.NewFlagSet("musterd mail", pflag.ContinueOnError)
	var server mailer.Server
	flags.StringVar(&server.Addr, "smtp", "", "")
	flags.StringVar(&server.User, "user", "", "")
	from, file := flags.String("from", "", ""), flags.String("password-file", "", "")
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil || server.Addr == "" || *from == "" ||
		flags.NArg() == 0 ||
		(server.User == "") != (*file == "") {
		return errors.Join(err, errMailUsage)
	}
	if *file != "" {
		password, err := mailer.ReadPassword(*file)
		if err != nil {
			return err
		}
		server.Password = password
	}
	message, err := io.ReadAll(io.LimitReader(in, maxMail))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
	defer cancel()
	return server.Send(ctx, *from, flags.Args(), message)
}
