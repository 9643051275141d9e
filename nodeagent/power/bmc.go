package power

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/spec"
)

// patience bounds one question to a management controller.
const patience = 10 * time.Second

// IPMI asks the node's own management controller for its power by DCMI.
type IPMI struct {
	Program string // ipmitool, by its path or to be searched in PATH
}

// Name implements Source.
func (*IPMI) Name() string { return "ipmi" }

// IsSlow implements Source.
func (*IPMI) IsSlow() bool { return true }

// Read implements Source.
func (i *IPMI) Read(ctx context.Context, now spec.Instant) (*energy.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.Program, "dcmi", "power", "reading")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	out := &bytes.Buffer{}
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: ipmi: %w (install ipmitool)", ErrNoMeter, err)
	case err != nil:
		text := strings.TrimSpace(said.String())
		return nil, fmt.Errorf("ipmi: %s dcmi power reading: %w: %s", i.Program, err, text)
	}
	word, ok := fieldBehind(out.String(), "Instantaneous power reading")
	if !ok {
		return nil, fmt.Errorf("ipmi: %s names no instantaneous power reading", i.Program)
	}
	power, err := milliwatts(word)
	if err != nil {
		return nil, fmt.Errorf("ipmi: %w", err)
	}
	// Controllers that cannot measure say that power management is not active, and 0.
	state, known := fieldBehind(out.String(), "Power reading state is")
	if power == 0 || known && state == "deactivated" {
		return nil, fmt.Errorf("%w: ipmi: the controller does not measure power", ErrNoMeter)
	}
	return &energy.Reading{At: now, MilliWatts: power, WithGPUs: true}, nil
}

// Redfish asks a management controller over HTTPS for the power of its chassis.
type Redfish struct {
	URL      string // of the controller, without a path
	User     string
	Password func() (string, error) // read for each question: passwords are changed
	client   *http.Client
}

// NewRedfish makes the source of a controller. ca is a file with certificates that
// its own may be signed by; empty: those that the machine trusts.
func NewRedfish(address, user string, password func() (string, error), ca string) (*Redfish, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an address https://HOST of a management controller", address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("redfish: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redfish: %s holds no certificate", ca)
		}
	}
	return &Redfish{
		URL:      strings.TrimSuffix(address, "/"),
		User:     user,
		Password: password,
		client: &http.Client{
			Transport: &http.Transport{TLSClientConfig: config},
			// A password goes to the controller that was named, and to no other.
			CheckRedirect: func(request *http.Request, via []*http.Request) error {
				if request.URL.Host != via[0].URL.Host || request.URL.Scheme != via[0].URL.Scheme {
					return fmt.Errorf("it points to another host, %s", request.URL.Host)
				}
				return nil
			},
		},
	}, nil
}

// Name implements Source.
func (*Redfish) Name() string { return "redfish" }

// IsSlow implements Source.
func (*Redfish) IsSlow() bool { return true }

// link is a reference of Redfish to another resource.
type link struct {
	ID string `json:"@odata.id"`
}

// Read implements Source: it adds up the chassis that measure power.
func (r *Redfish) Read(ctx context.Context, now spec.Instant) (*energy.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list struct{ Members []link }
	if err := r.get(ctx, "/redfish/v1/Chassis", &list); err != nil {
		return nil, err
	}
	var watts float64
	found := false
	for _, member := range list.Members {
		power, ok, err := r.chassisPower(ctx, member.ID)
		if err != nil {
			return nil, err
		}
		watts += power
		found = found || ok
	}
	if !found {
		return nil, fmt.Errorf("%w: redfish: no chassis of %s measures power", ErrNoMeter, r.URL)
	}
	return &energy.Reading{At: now, MilliWatts: int64(watts * 1000), WithGPUs: true}, nil
}

// chassisPower asks one chassis: its environment metrics or, in older controllers,
// its power control.
func (r *Redfish) chassisPower(ctx context.Context, id string) (watts float64, ok bool, err error) {
	var chassis struct{ EnvironmentMetrics, Power link }
	if err := r.get(ctx, id, &chassis); err != nil {
		return 0, false, err
	}
	if chassis.EnvironmentMetrics.ID != "" {
		var metrics struct{ PowerWatts struct{ Reading *float64 } }
		err := r.get(ctx, chassis.EnvironmentMetrics.ID, &metrics)
		if err == nil && metrics.PowerWatts.Reading != nil {
			return *metrics.PowerWatts.Reading, true, nil
		}
	}
	if chassis.Power.ID == "" {
		return 0, false, nil
	}
	var power struct {
		PowerControl []struct{ PowerConsumedWatts *float64 }
	}
	if err := r.get(ctx, chassis.Power.ID, &power); err != nil {
		return 0, false, err
	}
	for _, control := range power.PowerControl {
		if control.PowerConsumedWatts != nil {
			watts += *control.PowerConsumedWatts
			ok = true
		}
	}
	return watts, ok, nil
}

// maxAnswer bounds what is read of one resource.
const maxAnswer = 4 << 20

func (r *Redfish) get(ctx context.Context, path string, into any) error {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return fmt.Errorf("redfish: %s names a resource %q, which is not its own", r.URL, path)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return fmt.Errorf("redfish: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if r.User != "" {
		password, err := r.Password()
		if err != nil {
			return fmt.Errorf("redfish: %w", err)
		}
		request.SetBasicAuth(r.User, password)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return fmt.Errorf("redfish: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("redfish: %s%s answers %s", r.URL, path, answer.Status)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("redfish: %s%s: %w", r.URL, path, err)
	}
	return nil
}
