package main

import (
	"errors"
	"fmt"
	"io"
	"net/smtp"

	"github.com/spf13/pflag"
)

// maxMail bounds a message.
const maxMail = 32 << 20

var errMailUsage = errors.New("usage: musterd mail --smtp HOST:PORT --from ADDRESS -- ADDRESS... <message")

// mailCommand is `musterd mail`: it hands a message to a mail server for
// `muster report --smtp`, which must start faster than a program that can.
func mailCommand(args []string, in io.Reader, errOut io.Writer) int {
	if err := sendMail(args, in); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

func sendMail(args []string, in io.Reader) error {
	fl := pflag.NewFlagSet("musterd mail", pflag.ContinueOnError)
	server, from := fl.String("smtp", "", ""), fl.String("from", "", "")
	fl.Usage = func() {}
	if err := fl.Parse(args); err != nil || *server == "" || *from == "" || fl.NArg() == 0 {
		return errors.Join(err, errMailUsage)
	}
	message, err := io.ReadAll(io.LimitReader(in, maxMail))
	if err != nil {
		return err
	}
	return smtp.SendMail(*server, nil, *from, fl.Args(), message)
}
