// Package muster speaks to a controller of Muster over REST, as a program that
// runs outside of the cluster does: a token that proves who it is, and the
// cluster's certificate authority, which proves who answers.
package muster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// CallsAtOnce is how many calls a client makes at the same time without a new connection.
const CallsAtOnce = 32

// Times and sizes of a conversation.
const (
	// callTime bounds one request. The answer is given once the ledger is durable.
	callTime = 20 * time.Second
	// silence is how long a watch may say nothing. The controller says something
	// every 10 seconds.
	silence = 35 * time.Second
	// maxMessage bounds one line of a watch: a cluster of 100,000 nodes needs less.
	maxMessage = 256 << 20
)

// ErrAway is wrapped by every failure to reach a controller that can answer.
var ErrAway = errors.New("no controller of Muster answers")

// Refusal is what a controller answered instead of doing what was asked.
type Refusal struct {
	Status  int    // of HTTP
	Code    string // class, gRPC's name for it
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Denied tells that the controller does not let this caller do this.
func (r *Refusal) Denied() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// elsewhere tells that another controller may be able to answer.
func (r *Refusal) elsewhere() bool { return r.Status == http.StatusServiceUnavailable }

// Config says where the controllers are and who calls.
type Config struct {
	Addresses []string // https://HOST:PORT or unix:///PATH, one for each controller
	TokenFile string   // read again for each call, so that a new token needs no restart
	CAFile    string   // the cluster's certificate authority; empty: the system's
}

// Client calls the controller that leads. It is safe for several goroutines.
type Client struct {
	tokenFile string
	http      *http.Client
	bases     []string // of URLs

	mu   sync.Mutex
	lead int // index of the address that answered last
}

// New checks a configuration. All that is wrong with it is told at once.
func New(cfg Config) (*Client, error) {
	var wrong []error
	if len(cfg.Addresses) == 0 {
		wrong = append(wrong, errors.New("no address of a controller is given"))
	}
	c := &Client{tokenFile: cfg.TokenFile}
	sockets := map[string]string{} // by made-up host
	for i, address := range cfg.Addresses {
		u, err := url.Parse(address)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("invalid address of a controller: %w", err))
		case u.Scheme == "unix" && u.Host == "" && u.Path != "":
			host := fmt.Sprintf("socket-%d", i)
			sockets[host+":80"] = u.Path
			c.bases = append(c.bases, "http://"+host)
		case u.Scheme == "https" && u.Host != "" && strings.Trim(u.Path, "/") == "":
			c.bases = append(c.bases, "https://"+u.Host)
			if cfg.TokenFile == "" {
				wrong = append(
					wrong,
					fmt.Errorf("%s needs a token; give a file with one of scontrol token", address),
				)
			}
		default:
			wrong = append(
				wrong,
				fmt.Errorf(
					"invalid address %q: expected https://HOST:PORT or unix:///PATH",
					address,
				),
			)
		}
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS13}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("the certificate authority: %w", err))
		}
		trust.RootCAs = x509.NewCertPool()
		if err == nil && !trust.RootCAs.AppendCertsFromPEM(pem) {
			wrong = append(wrong, fmt.Errorf("%s holds no certificate in PEM", cfg.CAFile))
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	c.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig:     trust,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: CallsAtOnce,
		IdleConnTimeout:     time.Minute,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path, ok := sockets[address]; ok {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, network, address)
		},
	}}
	return c, nil
}

// Hold asks for a part of a node. The answer comes when it is durable.
func (c *Client) Hold(
	ctx context.Context,
	req *apiv1.HoldNodeRequest,
) (*apiv1.HoldNodeReply, error) {
	rep := &apiv1.HoldNodeReply{}
	return rep, c.call(ctx, "HoldNode", req, rep)
}

// Release gives it back.
func (c *Client) Release(
	ctx context.Context,
	req *apiv1.ReleaseHoldRequest,
) (*apiv1.ReleaseHoldReply, error) {
	rep := &apiv1.ReleaseHoldReply{}
	return rep, c.call(ctx, "ReleaseHold", req, rep)
}

// SubmitPods asks for a job of pods.
func (c *Client) SubmitPods(
	ctx context.Context,
	req *apiv1.SubmitPodsRequest,
) (*apiv1.SubmitPodsReply, error) {
	rep := &apiv1.SubmitPodsReply{}
	return rep, c.call(ctx, "SubmitPods", req, rep)
}

// AdmitPods says anew where the pods of a waiting job may go.
func (c *Client) AdmitPods(
	ctx context.Context,
	req *apiv1.AdmitPodsRequest,
) (*apiv1.AdmitPodsReply, error) {
	rep := &apiv1.AdmitPodsReply{}
	return rep, c.call(ctx, "AdmitPods", req, rep)
}

// PodsOver tells that the pods of a job are over.
func (c *Client) PodsOver(
	ctx context.Context,
	req *apiv1.PodsOverRequest,
) (*apiv1.PodsOverReply, error) {
	rep := &apiv1.PodsOverReply{}
	return rep, c.call(ctx, "PodsOver", req, rep)
}

func (c *Client) call(ctx context.Context, method string, req, rep proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return c.each(ctx, method, req, func(body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxMessage))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
		return decode(text, rep)
	})
}

// Watch hands on what a controller tells of the nodes, until it or the context
// ends. It returns an error always.
func (c *Client) Watch(ctx context.Context, tell func(*apiv1.WatchHoldsReply)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := fmt.Errorf("%w: the watch said nothing for %s", ErrAway, silence)
	alarm := time.AfterFunc(silence, func() { cancel(quiet) })
	defer alarm.Stop()
	err := c.each(ctx, "WatchHolds", &apiv1.WatchHoldsRequest{Pods: true}, func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, 0, 64<<10), maxMessage)
		for lines.Scan() {
			alarm.Reset(silence)
			var failed failure
			if err := json.Unmarshal(lines.Bytes(), &failed); err == nil && failed.Error != nil {
				return failed.refusal(http.StatusServiceUnavailable)
			}
			news := &apiv1.WatchHoldsReply{}
			if err := decode(lines.Bytes(), news); err != nil {
				return err
			}
			tell(news)
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
		return fmt.Errorf("%w: the watch has ended", ErrAway)
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// each tries the controllers, first the one that answered last, until one takes
// the request.
func (c *Client) each(
	ctx context.Context,
	method string,
	req proto.Message,
	take func(io.Reader) error,
) error {
	c.mu.Lock()
	first := c.lead
	c.mu.Unlock()
	var last error
	for i := range c.bases {
		at := (first + i) % len(c.bases)
		err := c.ask(ctx, c.bases[at], method, req, func(body io.Reader) error {
			c.mu.Lock()
			c.lead = at
			c.mu.Unlock()
			return take(body)
		})
		var refused *Refusal
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.elsewhere():
			err = fmt.Errorf("%w: %s", ErrAway, refused.Message)
		case !errors.Is(err, ErrAway):
			return err
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return last
}

func (c *Client) ask(
	ctx context.Context,
	base, method string,
	msg proto.Message,
	take func(io.Reader) error,
) error {
	body, err := protojson.Marshal(msg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		base+"/v1/Cluster/"+method,
		bytes.NewReader(body),
	)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("%w: the token: %w", ErrAway, err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	rep, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	defer rep.Body.Close()
	if rep.StatusCode == http.StatusOK {
		return take(rep.Body)
	}
	text, err := io.ReadAll(io.LimitReader(rep.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	var failed failure
	if err := json.Unmarshal(text, &failed); err != nil || failed.Error == nil {
		return fmt.Errorf(
			"%w: %s answered %s without a reason; is it a controller of Muster?",
			ErrAway,
			base,
			rep.Status,
		)
	}
	return failed.refusal(rep.StatusCode)
}

// failure is an error as the API writes it.
type failure struct {
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (f *failure) refusal(status int) *Refusal {
	return &Refusal{Status: status, Code: f.Error.Code, Message: f.Error.Message}
}

// decode reads an answer. Fields that a newer controller has are passed over.
func decode(text []byte, into proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, into); err != nil {
		return fmt.Errorf(
			"the controller's answer is not a %s: %w",
			into.ProtoReflect().Descriptor().Name(),
			err,
		)
	}
	return nil
}

// Call asks for any method of the service Cluster that answers once.
func (c *Client) Call(ctx context.Context, method string, req, rep proto.Message) error {
	return c.call(ctx, method, req, rep)
}
