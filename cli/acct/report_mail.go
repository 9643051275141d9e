package acct

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"mime"
	"net/mail"
	"os/exec"
	"strings"
	"time"
)

// sendmailPaths are where sendmail may be: in PATH, or where Debian and others
// keep it.
func sendmailPaths() []string { return []string{"sendmail", "/usr/sbin/sendmail", "/usr/lib/sendmail"} }

// sendMail sends the report, as text and HTML.
func (r *reporting) sendMail(to []string) error {
	from := cmp.Or(r.Opts.Text("from"), "muster@"+cmp.Or(r.Host, "localhost"))
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return r.Errorf("--from=%s is not a valid address", from)
	}
	var list []string
	for _, a := range to {
		addr, err := mail.ParseAddress(a)
		if err != nil {
			return r.Errorf("--mail=%s is not a valid address", a)
		}
		list = append(list, addr.Address)
	}
	server := r.Opts.Text("smtp")
	user := r.Opts.Text("smtp-user")
	password := r.Opts.Text("smtp-password-file")
	if (user == "") != (password == "") || (user != "" && server == "") {
		return r.Errorf(
			"--smtp-user=NAME, --smtp-password-file=FILE and --smtp=HOST:PORT go together",
		)
	}
	r.page.steps = nil // mail is UTF-8
	message := mailText(
		sender.Address,
		list,
		r.page.title,
		r.page.text(),
		r.page.renderHTML(),
		r.Now(),
	)
	if server != "" {
		args := []string{"mail", "--smtp", server, "--from", sender.Address}
		if user != "" {
			args = append(args, "--user", user, "--password-file", password)
		}
		args = append(append(args, "--"), list...)
		if err := r.Beside(r.Ctx, bytes.NewReader(message), "musterd", args...); err != nil {
			return r.Errorf("%s does not take the mail: %v", server, err)
		}
		return nil
	}
	for _, path := range sendmailPaths() {
		args := append([]string{"-i", "-f", sender.Address, "--"}, list...)
		cmd := exec.CommandContext(r.Ctx, path, args...)
		cmd.Stdin = bytes.NewReader(message)
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return nil
		case cmd.Process == nil: // it is not there
			continue
		}
		return r.Errorf(
			"%s does not take the mail: %v: %s",
			path,
			err,
			strings.TrimSpace(string(out)),
		)
	}
	return r.Errorf(
		"sendmail is not installed (%s); set a mail server with --smtp=HOST:PORT",
		strings.Join(sendmailPaths(), ", "),
	)
}

// mailText is a message with two forms of the same text.
func mailText(from string, to []string, subject, text, html string, now time.Time) []byte {
	const boundary = "muster-report-7d1f0c"
	var buffer bytes.Buffer
	fmt.Fprintf(
		&buffer,
		"From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: %s\r\nMIME-Version: 1.0\r\nAuto-Submitted: auto-generated\r\nContent-Type: multipart/alternative; boundary=%s\r\n",
		from,
		strings.Join(to, ", "),
		mime.QEncoding.Encode("utf-8", oneLine(subject)),
		now.Format(time.RFC1123Z),
		messageID(from, to, subject, text, now),
		boundary,
	)
	for _, form := range [...][2]string{{"plain", text}, {"html", html}} {
		fmt.Fprintf(
			&buffer,
			"\r\n--%s\r\nContent-Type: text/%s; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
			boundary,
			form[0],
		)
		data := base64.StdEncoding.EncodeToString([]byte(form[1]))
		for len(data) > 0 {
			n := min(76, len(data))
			buffer.WriteString(data[:n] + "\r\n")
			data = data[n:]
		}
	}
	fmt.Fprintf(&buffer, "\r\n--%s--\r\n", boundary)
	return buffer.Bytes()
}

// messageID names a message after its instant and what is in it: those of a
// schedule leave at once.
func messageID(from string, to []string, subject, text string, now time.Time) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q", to, subject, text)
	return fmt.Sprintf(
		"<%d.%016x@%s>",
		now.UnixNano(),
		h.Sum64(),
		from[strings.LastIndexByte(from, '@')+1:],
	)
}

// oneLine keeps what a user named a job from becoming a header.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}
