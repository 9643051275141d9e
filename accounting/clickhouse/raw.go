package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhpc/muster/accounting/query"
)

// ErrNoHTTP tells that the store cannot answer in a format.
var ErrNoHTTP = errors.New(
	"the accounting store is reached over ClickHouse's native protocol, which has no such output: give its HTTP interface in clickhouse.dsn (http://host:8123)",
)

// Raw asks a question and gives the answer as the engine writes it, in one of
// its formats. The question is run read-only and within limits, and what it
// filters for itself is filtered after the filters below it: an error tells
// nothing about rows that it may not see. The embedded engine reads a GET with
// its strictest session.
func (s *Store) Raw(
	ctx context.Context,
	q query.Query,
	format string,
	lim query.Limits,
) (io.ReadCloser, error) {
	client, base, err := s.rawClient()
	if err != nil {
		return nil, err
	}
	values := url.Values{"query": {q.SQL}, "default_format": {format}, "wait_end_of_query": {"0"}}
	for _, param := range q.Params {
		values.Set("param_"+param.Name, rawParam(param.Value))
	}
	for name, value := range rawSettings(lim) {
		values.Set(name, value)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if s.auth.Username != "" {
		request.Header.Set("X-ClickHouse-User", s.auth.Username)
		request.Header.Set("X-ClickHouse-Key", s.auth.Password)
	}
	resp, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the accounting store: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return nil, fmt.Errorf("ask the accounting store: %w", err)
		}
		return nil, &EngineError{Text: strings.TrimSpace(string(text))}
	}
	return resp.Body, nil
}

// EngineError is what the engine says against a question.
type EngineError struct{ Text string }

// EngineText is what the engine says, as it says it.
func (e *EngineError) EngineText() string { return e.Text }

// Error is the engine's text.
func (e *EngineError) Error() string { return e.Text }

func rawSettings(lim query.Limits) map[string]string {
	n := func(v int64) string { return fmt.Sprint(v) }
	out := map[string]string{
		"max_execution_time":                 n(int64(lim.Seconds)),
		"max_memory_usage":                   n(lim.Memory),
		"max_result_rows":                    n(lim.Rows),
		"result_overflow_mode":               "throw",
		"timeout_overflow_mode":              "throw",
		"max_threads":                        n(int64(lim.Threads)),
		"max_query_size":                     "1048576",
		"max_ast_depth":                      "500",
		"max_expanded_ast_elements":          "100000",
		"max_bytes_before_external_sort":     "0",
		"max_bytes_before_external_group_by": "0",
		// Conditions stay where they are written.
		"query_plan_enable_optimizations":          "0",
		"enable_optimize_predicate_expression":     "0",
		"optimize_move_to_prewhere":                "0",
		"use_query_cache":                          "0",
		"output_format_parquet_compression_method": "zstd",
	}
	for name, v := range askSettings() {
		out[name] = fmt.Sprint(v)
	}
	return out
}

// rawParam writes a value as the HTTP interface takes it.
func rawParam(value any) string {
	list := func(n int, at func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = at(i)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	switch v := value.(type) {
	case string:
		return strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`).Replace(v)
	case []string:
		return list(len(v), func(i int) string { return quoteText(v[i]) })
	case []uint64:
		return list(len(v), func(i int) string { return fmt.Sprint(v[i]) })
	case []uint32:
		return list(len(v), func(i int) string { return fmt.Sprint(v[i]) })
	}
	return fmt.Sprint(value)
}

// rawClient is how the HTTP interface is reached.
func (s *Store) rawClient() (*http.Client, string, error) {
	if s.opts.Socket != "" {
		return s.rawHTTP, "http://localhost", nil
	}
	if !s.http {
		return nil, "", ErrNoHTTP
	}
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	return s.rawHTTP, scheme + "://" + s.target, nil
}

// rawTransport makes the client of Raw.
func rawTransport(socket string, secure *tls.Config) *http.Client {
	t := &http.Transport{
		TLSClientConfig:     secure,
		MaxIdleConns:        8,
		MaxIdleConnsPerHost: 8,
		DisableCompression:  true,
	}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: t}
}
