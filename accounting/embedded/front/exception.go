package front

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// ClickHouse's own error codes for what the front itself refuses.
const (
	codeBadArguments    = 36
	codeNotImplemented  = 48
	codeSyntaxError     = 62
	codeUnknownSetting  = 115
	codeReadonly        = 164
	codeTooManyQueries  = 202
	codeCannotParse     = 27
	codeAttemptToRead   = 32
	codeRequired        = 194
	codeAuthFailed      = 516
	codeUnknown         = 1002
	codeUnsupportedHTTP = 652
)

// codeNames are the symbolic names that end the text of the front's own refusals.
func codeName(code int) string {
	switch code {
	case codeBadArguments:
		return "BAD_ARGUMENTS"
	case codeNotImplemented:
		return "NOT_IMPLEMENTED"
	case codeSyntaxError:
		return "SYNTAX_ERROR"
	case codeUnknownSetting:
		return "UNKNOWN_SETTING"
	case codeReadonly:
		return "READONLY"
	case codeTooManyQueries:
		return "TOO_MANY_SIMULTANEOUS_QUERIES"
	case codeCannotParse:
		return "CANNOT_PARSE_INPUT_ASSERTION_FAILED"
	case codeAttemptToRead:
		return "ATTEMPT_TO_READ_AFTER_EOF"
	case codeRequired:
		return "REQUIRED_PASSWORD"
	case codeAuthFailed:
		return "AUTHENTICATION_FAILED"
	case codeUnsupportedHTTP:
		return "UNSUPPORTED_METHOD"
	}
	return "UNKNOWN_EXCEPTION"
}

// refuseStatement makes an exception of the front's own, in the engine's form.
func refuseStatement(code int, format string, args ...any) error {
	return &chdb.Error{Code: code, Message: fmt.Sprintf("Code: %d. DB::Exception: %s. (%s)",
		code, fmt.Sprintf(format, args...), codeName(code))}
}

// twice finds the prefix that the engine sometimes puts before a message which has one already.
var twice = regexp.MustCompile(`^Code: (\d+)\. DB::Exception: (Code: \d+\. DB::)`)

// asException turns any error into an exception with a code: every refusal that leaves the
// front has one.
func asException(err error) *chdb.Error {
	var e *chdb.Error
	if !errors.As(err, &e) {
		return &chdb.Error{
			Code: codeUnknown,
			Message: fmt.Sprintf(
				"Code: %d. DB::Exception: %s. (%s)",
				codeUnknown,
				err,
				codeName(codeUnknown),
			),
		}
	}
	if e.Code == 0 {
		return &chdb.Error{
			Code: codeUnknown,
			Message: fmt.Sprintf(
				"Code: %d. DB::Exception: %s. (%s)",
				codeUnknown,
				strings.TrimSuffix(e.Message, "."),
				codeName(codeUnknown),
			),
		}
	}
	if m := twice.FindStringSubmatchIndex(e.Message); m != nil {
		text := e.Message[m[4]:]
		// The name closes the inner message already: ". (NAME) (version V). (NAME)".
		if i := strings.LastIndex(text, "). ("); i > 0 && strings.Contains(text[:i], text[i+3:]) {
			text = text[:i+1]
		}
		return &chdb.Error{Code: e.Code, Message: text}
	}
	return e
}

// status maps an exception to the HTTP status that ClickHouse's own server would give, as far
// as clients care.
func status(code int) int {
	switch code {
	case codeRequired:
		return http.StatusUnauthorized
	case codeAuthFailed, codeReadonly, 497: // ACCESS_DENIED
		return http.StatusForbidden
	case 60, 81: // UNKNOWN_TABLE, UNKNOWN_DATABASE
		return http.StatusNotFound
	case 159: // TIMEOUT_EXCEEDED
		return http.StatusRequestTimeout
	case codeNotImplemented:
		return http.StatusNotImplemented
	case codeUnsupportedHTTP:
		return http.StatusMethodNotAllowed
	case codeTooManyQueries, 241, 243: // MEMORY_LIMIT_EXCEEDED, NOT_ENOUGH_SPACE
		return http.StatusServiceUnavailable
	case codeCannotParse, codeAttemptToRead, codeBadArguments, codeSyntaxError, codeUnknownSetting,
		6, 26, 38, 41, 42, 43, 44, 46, 47, 53, 69, 70, 72, 73, 130, 352, 386, 456, 457, 472:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// isEngineTrouble tells codes that speak of the engine's own condition: logical errors, files,
// disks, memory, too many parts, data that do not match their checksums.
func isEngineTrouble(code int) bool {
	switch code {
	case codeUnknown, 40, 49, 74, 75, 76, 173, 226, 228, 241, 243, 246, 252, 271, 425:
		return true
	}
	return false
}

// writeException answers with e; nothing has been sent yet.
func writeException(writer http.ResponseWriter, err error) {
	e := asException(err)
	header := writer.Header()
	header.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.Code))
	header.Set("Content-Type", "text/plain; charset=UTF-8")
	header.Del("X-ClickHouse-Format")
	if e.Code == codeRequired {
		header.Set("WWW-Authenticate", `Basic realm="ClickHouse server HTTP API"`)
	}
	body := strings.TrimRight(e.Message, "\n") + "\n"
	header.Set("Content-Length", strconv.Itoa(len(body)))
	writer.WriteHeader(status(e.Code))
	_, _ = writer.Write([]byte(body)) // the client may be gone
}

// maxBlockMessage bounds the text of an exception that follows data already sent.
const maxBlockMessage = 16<<10 - 256

// exceptionBlock is how an exception ends an answer that has begun: framed, so that clients
// tell it from data, and marked with the tag that the answer's header announced.
func exceptionBlock(err error, tag string) []byte {
	text := asException(err).Message
	if len(text) > maxBlockMessage {
		text = text[:maxBlockMessage]
	}
	text += "\n"
	return []byte("\r\n__exception__\r\n" + tag + "\r\n" + text + strconv.Itoa(len(text)) + " " +
		tag + "\r\n__exception__\r\n")
}

// randomName is hexadecimal text of 2n characters for tags and query ids.
func randomName(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
