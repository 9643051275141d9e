// Package token asks those who read metrics for a bearer token.
package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
)

// minToken is how long a token must be.
const minToken = 16

var errToken = errors.New("bad token file")

// readToken reads the first line of a token file that only its owner can read.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf(
			"%w: %s has mode %04o, so others can read it: chmod 600",
			errToken,
			path,
			mode,
		)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.TrimSpace(line)
	if len(line) < minToken {
		return "", fmt.Errorf(
			"%w: the token in %s has %d characters, %d at least are needed",
			errToken,
			path,
			len(line),
			minToken,
		)
	}
	return line, nil
}

// Check reads the file and says what is wrong with it; no name is no fault.
func Check(file string) error {
	if file == "" {
		return nil
	}
	_, err := readToken(file)
	return err
}

// Guard lets only requests with the token through; all of them without a
// file. The file is read for every request, so that the token can be rotated.
func Guard(next http.Handler, file string, logger *slog.Logger) http.Handler {
	if file == "" {
		return next
	}
	return guard{next: next, file: file, log: logger}
}

// guard lets only requests with the token through.
type guard struct {
	next http.Handler
	file string
	log  *slog.Logger
}

func (g guard) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	want, err := readToken(g.file)
	if err != nil { // closed rather than open
		g.log.Error("metrics are refused: the token cannot be read", "error", err)
		http.Error(
			writer,
			"the token cannot be read; the server's log says why",
			http.StatusInternalServerError,
		)
		return
	}
	scheme, given, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(given))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		writer.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(writer, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	g.next.ServeHTTP(writer, request)
}
