package mailing

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"mime"
	"net/mail"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/mailer"
)

// Poster makes what hands mail about jobs to the server of reports.smtp; nil where there is none.
// A recipient without a domain gets the sender's, because a server refuses a bare name.
func Poster(
	reports *conffile.Reports, now func() time.Time,
) (func(ctx context.Context, to, subject, text string) error, error) {
	if reports.SMTP == "" {
		return nil, nil //nolint:nilnil // mail goes through a program then
	}
	from := reports.From
	if from == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		from = "muster@" + host
	}
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("reports.from=%s: %w", from, err)
	}
	domain := sender.Address[strings.LastIndexByte(sender.Address, '@'):]
	return func(ctx context.Context, to, subject, text string) error {
		server := mailer.Server{Addr: reports.SMTP, User: reports.SMTPUser}
		if server.User != "" {
			var err error
			server.Password, err = mailer.ReadPassword(reports.SMTPPasswordFile)
			if err != nil {
				return err
			}
		}
		recipients, err := addresses(to, domain)
		if err != nil {
			return err
		}
		message := compose(sender.String(), recipients, subject, text, now())
		if err := server.Send(ctx, sender.Address, recipients, message); err != nil {
			return fmt.Errorf("mail server %s: %w", reports.SMTP, err)
		}
		return nil
	}, nil
}

// addresses reads recipients with commas between them, as --mail-user has them.
func addresses(list, domain string) ([]string, error) {
	var out []string
	for one := range strings.SplitSeq(list, ",") {
		if !strings.Contains(one, "@") {
			one += domain
		}
		address, err := mail.ParseAddress(one)
		if err != nil {
			return nil, fmt.Errorf("recipient %s: %w", one, err)
		}
		out = append(out, address.Address)
	}
	return out, nil
}

// compose makes a message of plain text.
func compose(from string, to []string, subject, text string, at time.Time) []byte {
	const lineLength = 76 // of base64, by RFC 2045
	var message strings.Builder
	header := func(name, value string) { fmt.Fprintf(&message, "%s: %s\r\n", name, value) }
	header("From", from)
	header("To", strings.Join(to, ", "))
	header("Subject", mime.QEncoding.Encode("utf-8", subject))
	header("Date", at.Format(time.RFC1123Z))
	header("Message-ID", messageID(from, to, subject, at))
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "base64")
	message.WriteString("\r\n")
	data := base64.StdEncoding.EncodeToString([]byte(text))
	for len(data) > 0 {
		n := min(lineLength, len(data))
		message.WriteString(data[:n] + "\r\n")
		data = data[n:]
	}
	return []byte(message.String())
}

// messageID names a message after its instant and what it is about: mails of one instant differ.
func messageID(from string, to []string, subject string, at time.Time) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q", to, subject)
	domain := strings.TrimSuffix(from[strings.LastIndexByte(from, '@')+1:], ">")
	return fmt.Sprintf("<%d.%016x@%s>", at.UnixNano(), h.Sum64(), domain)
}
