package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	metricsrpc "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracesrpc "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // messages are compressed
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Config says where the receiver is and how it knows us.
type Config struct {
	// At has the scheme grpc, grpcs, http or https, and a port. Below the path of the
	// last two are v1/traces and v1/metrics.
	At *url.URL
	// CA are the certificates that may have signed the receiver's; empty = those that
	// the host trusts.
	CA string
	// Cert and Key are shown to the receiver; empty = none.
	Cert, Key string
	// TokenFile holds a bearer token, and is read anew for each message; empty = none.
	TokenFile string
	// Headers are lines "Name: value" of each message.
	Headers []string
	// Timeout of a try.
	Timeout time.Duration
}

// maxAnswer bounds what is read of an answer over HTTP.
const maxAnswer = 64 << 10

// Error is why a receiver did not take a message.
type Error struct {
	Err error
	// Never tells that the receiver would refuse the same message again.
	Never bool
	// After is how long the receiver asks to wait; 0 = it does not say.
	After time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Rejected is what a receiver left out of a message that it took.
type Rejected struct {
	Count int64
	Why   string
}

// Client sends to one receiver. It is for many goroutines.
type Client struct {
	cfg  Config
	conn *grpc.ClientConn // nil = HTTP
	web  *http.Client
}

// New makes a client. It does not connect yet.
func New(config Config) (*Client, error) {
	secure, err := TLS(config.CA, config.Cert, config.Key)
	if err != nil {
		return nil, err
	}
	client := &Client{cfg: config}
	switch config.At.Scheme {
	case "grpc", "grpcs":
		creds := insecure.NewCredentials()
		if config.At.Scheme == "grpcs" {
			creds = credentials.NewTLS(secure)
		}
		client.conn, err = grpc.NewClient("passthrough:///"+config.At.Host, dialOptions(creds)...)
		if err != nil {
			return nil, fmt.Errorf("connection to %s: %w", config.At, err)
		}
	default:
		client.web = &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:     secure,
				Proxy:               http.ProxyFromEnvironment,
				ForceAttemptHTTP2:   true,
				MaxIdleConnsPerHost: 2,
				IdleConnTimeout:     time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return client, nil
}

// maxReconnectPause bounds the pause between two attempts to connect. The callers pause as well
// and stop at their first failure, so that gRPC's own pauses of up to two minutes would be added
// to theirs.
const (
	maxReconnectPause = 5 * time.Second
	minConnectTimeout = 20 * time.Second // gRPC's default, which is lost where pauses are set
)

// dialOptions are those of a connection by gRPC.
func dialOptions(creds credentials.TransportCredentials) []grpc.DialOption {
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = maxReconnectPause
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           pauses,
			MinConnectTimeout: minConnectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")),
		grpc.WithDisableServiceConfig(),
	}
}

// TLS makes the configuration of a client from files; empty ones are left out.
func TLS(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("certificates that may sign the receiver's: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", ca)
		}
	}
	if cert != "" {
		// It is read at each connection, so that a renewed one is used.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return config, nil
}

// ReadToken reads a file with a bearer token.
func ReadToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("token for the receiver: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.conn != nil {
		return c.conn.Close()
	}
	c.web.CloseIdleConnections()
	return nil
}

// SendTraces hands spans over.
func (c *Client) SendTraces(ctx context.Context, m *tracesrpc.ExportTraceServiceRequest) (Rejected, error) {
	answer := &tracesrpc.ExportTraceServiceResponse{}
	err := c.send(ctx, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "v1/traces", m, answer)
	part := answer.GetPartialSuccess()
	return Rejected{part.GetRejectedSpans(), part.GetErrorMessage()}, err
}

// SendMetrics hands points over.
func (c *Client) SendMetrics(ctx context.Context, m *metricsrpc.ExportMetricsServiceRequest) (Rejected, error) {
	answer := &metricsrpc.ExportMetricsServiceResponse{}
	err := c.send(ctx, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "v1/metrics", m, answer)
	part := answer.GetPartialSuccess()
	return Rejected{part.GetRejectedDataPoints(), part.GetErrorMessage()}, err
}

// send does one try.
func (c *Client) send(ctx context.Context, method, path string, m, answer proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	token := ""
	if c.cfg.TokenFile != "" {
		var err error
		if token, err = ReadToken(c.cfg.TokenFile); err != nil {
			return &Error{Err: err}
		}
	}
	var err error
	if c.conn != nil {
		err = c.sendGRPC(ctx, method, token, m, answer)
	} else {
		err = c.sendHTTP(ctx, path, token, m, answer)
	}
	var known *Error
	if err != nil && !errors.As(err, &known) {
		err = &Error{Err: err}
	}
	return err
}

func (c *Client) sendGRPC(ctx context.Context, method, token string, m, answer proto.Message) error {
	for name, value := range c.headers(token) {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), value)
	}
	err := c.conn.Invoke(ctx, method, m, answer)
	if err == nil {
		return nil
	}
	said := status.Convert(err)
	out := &Error{Err: fmt.Errorf("%s: %s: %s", c.cfg.At, said.Code(), said.Message())}
	switch said.Code() {
	case codes.InvalidArgument, codes.OutOfRange:
		out.Never = true
	}
	for _, detail := range said.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			out.After = info.GetRetryDelay().AsDuration()
		}
	}
	return out
}

func (c *Client) sendHTTP(ctx context.Context, path, token string, m, answer proto.Message) error {
	plain, err := proto.Marshal(m)
	if err != nil {
		return &Error{Err: err, Never: true}
	}
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	if _, err := zip.Write(plain); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, c.cfg.At.JoinPath(path).String(), &body,
	)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	request.Header.Set("User-Agent", "musterd")
	for name, value := range c.headers(token) {
		request.Header.Set(name, value)
	}
	resp, err := c.web.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 == 2 {
		if resp.Header.Get("Content-Type") == "application/x-protobuf" {
			return proto.Unmarshal(said, answer)
		}
		return nil
	}
	out := &Error{
		Err: fmt.Errorf("%s answered %s%s", request.URL, resp.Status, quoteAnswer(resp, said)),
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		out.Never = true
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		out.After = time.Duration(seconds) * time.Second
	}
	return out
}

// headers are those of a message.
func (c *Client) headers(token string) map[string]string {
	out := map[string]string{}
	for _, line := range c.cfg.Headers {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	if token != "" {
		out["Authorization"] = "Bearer " + token
	}
	return out
}

// quoteAnswer is what an answer says, if it is text.
func quoteAnswer(resp *http.Response, said []byte) string {
	const enough = 200
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/") && !strings.Contains(kind, "json") {
		return ""
	}
	text := strings.ToValidUTF8(strings.Join(strings.Fields(string(said)), " "), "")
	if len(text) > enough {
		text = strings.ToValidUTF8(text[:enough], "") + "..."
	}
	if text == "" {
		return ""
	}
	return ": " + text
}
