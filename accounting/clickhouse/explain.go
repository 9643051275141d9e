package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// Explained is an error of the store in words for the person who runs it.
type Explained struct {
	text string
	err  error
}

// Error is the sentence.
func (e *Explained) Error() string { return e.text }

// Unwrap is the error as it came.
func (e *Explained) Unwrap() error { return e.err }

// codes of ClickHouse that somebody can do something about, with what.
//
//muster:table one entry for each code
func cures() map[int32]string {
	const login = "the store refuses the login: look at the user and the password in clickhouse.dsn or clickhouse.dsn_file"
	return map[int32]string{
		192: login, 193: login, 194: login, 516: login,
		497: "the login of clickhouse.dsn lacks a right: muster accounting doctor prints the GRANT that is missing",
		164: "the login of clickhouse.dsn may only read: accounting needs one that may write",
		243: "the store's disk is full: make room, and what waits in the ledger is stored by itself",
		241: "the store has not enough memory for this: give the engine more (clickhouse.embedded.max_memory, or the server's max_server_memory_usage), or ask for less",
		159: "the store took longer than a question may take: ask for less at a time",
		202: "the store is busy with as many questions as it may answer at once: ask again",
		242: "a replica of the store may only be read: look at its ClickHouse Keeper",
		999: "the store's ClickHouse Keeper cannot be reached",
	}
}

// engineCode finds the code in what the engine says over HTTP.
func engineCode(text string) int32 {
	match := regexp.MustCompile(`(?i)\bcode: (\d{1,5})\b`).FindStringSubmatch(text)
	if match == nil {
		return 0
	}
	n, _ := strconv.ParseInt(match[1], 10, 32) // digits; 0 where there are too many
	return int32(n)
}

// engineSaid is the engine's code and text in an error; 0 where it is not its.
func engineSaid(err error) (code int32, said string) {
	var exception *ch.Exception
	var engine *EngineError
	switch {
	case errors.As(err, &exception):
		return exception.Code, exception.Message
	case errors.As(err, &engine):
		return engineCode(engine.Text), engine.Text
	}
	return 0, ""
}

// Explain says in one sentence what an error of the store means for whoever
// runs it, and what helps; one that it does not know comes back as it is.
func (s *Store) Explain(err error) error {
	var done *Explained
	if err == nil || errors.As(err, &done) || errors.Is(err, context.Canceled) {
		return err
	}
	say := func(format string, args ...any) error { return &Explained{fmt.Sprintf(format, args...), err} }
	code, said := engineSaid(err)
	if cure, ok := cures()[code]; ok {
		return say("%s (it says: %s)", cure, oneSentence(said))
	}
	var op *net.OpError
	var timeout net.Error
	var asked *url.Error
	switch {
	case code != 0:
		return err
	case errors.As(err, &op) && op.Op == "dial":
		return say("the store cannot be reached: %v", op)
	case errors.Is(err, ch.ErrAcquireConnTimeout),
		errors.As(err, &timeout) && timeout.Timeout(),
		errors.Is(err, context.DeadlineExceeded):
		return say(
			"the store at %s does not answer in time: it hangs, or has too much to do",
			s.target,
		)
	case errors.As(err, &asked):
		return say(
			"the connection to the store at %s failed (%v): it was stopped, or what listens there is no ClickHouse",
			s.target,
			asked.Err,
		)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return say(
			"the connection to the store at %s was broken off: it was stopped, or what listens there is no ClickHouse",
			s.target,
		)
	}
	return err
}

// oneSentence is the first line of what the engine says, not too long.
func oneSentence(text string) string {
	const most = 300
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}
