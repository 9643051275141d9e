package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/test/attack/hostile"
)

// neighbourJobs is how many jobs the neighbour submits beside each attack: enough
// for a percentile, and far fewer than MaxJobCount.
const neighbourJobs = 40

// maxMemory is what the controller may have resident under these attacks.
const maxMemory = 3 << 29 // 1.5 GiB

// pressure is one way to take more than one's share. It holds on until the
// context ends.
type pressure struct {
	name string
	do   func(ctx context.Context, l *lab) error
}

func pressures(short bool) []pressure {
	connections, bodies := 6000, 200
	if short {
		connections, bodies = 1500, 100
	}
	local := func(path func(l *lab) string) dialer {
		return func(ctx context.Context, l *lab) (net.Conn, error) { return l.dialAs(ctx, path(l), attacker) }
	}
	tcp := func(port int) dialer {
		return func(ctx context.Context, l *lab) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.portAddress(port))
		}
	}
	frameHead := binary.BigEndian.AppendUint32([]byte(framed.Preface), framed.MaxFrame)
	body := fmt.Sprintf(
		"POST /v1/Cluster/Submit HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
		15<<20,
	)
	return []pressure{
		{"nothing", func(ctx context.Context, _ *lab) error { <-ctx.Done(); return nil }},
		{"idle connections, frames", hold(connections, local((*lab).socketPath), framed.Preface)},
		{
			"idle connections, gRPC",
			hold(connections, local((*lab).socketPath), hostile.ClientPreface),
		},
		{"idle connections, nothing sent", hold(connections, local((*lab).socketPath), "")},
		{"idle connections, REST", hold(connections, local((*lab).restSocket), "")},
		{"idle connections, a node's socket", hold(connections, local((*lab).stepSocket), "")},
		{"idle connections, API over TCP", hold(connections, tcp(portAPI), "")},
		{"idle connections, REST over TCP", hold(connections, tcp(portREST), "")},
		{
			"idle connections, metrics",
			hold(connections, tcp(portMetrics), "GET /metrics HTTP/1.1\r\nHost: x\r\n"),
		},
		{"connections with TLS and no certificate", hold(connections/4, overTLS(tcp(portAPI)), "")},
		{
			"unfinished frames",
			hold(
				bodies,
				local((*lab).socketPath),
				string(frameHead)+strings.Repeat("\x01", 60_000),
			),
		},
		{"unfinished messages, gRPC", unfinished(bodies)},
		{"unfinished bodies, REST", hold(bodies, local((*lab).restSocket), body)},
		{
			"slow headers, REST",
			hold(
				connections/4,
				local((*lab).restSocket),
				"GET /v1/Cluster/Ping HTTP/1.1\r\nHost: x\r\nX-A: ",
			),
		},
		{"JSON of many values", repeated(manyValues)},
		{"protobuf of many values", repeated(manyTexts)},
		{"a script of many directives", repeated(manyDirectives)},
		{"questions without end", questions},
		{"jobs up to MaxJobCount", fillQueue},
	}
}

// attackExhaustion takes what one user can take, in each way for some seconds,
// while a neighbour works. A neighbour who is refused or gets no answer, and a
// controller that grows beyond its bound, are breaches.
func attackExhaustion(ctx context.Context, l *lab, r *report) error {
	length := 15 * time.Second
	if l.o.short {
		length = 2500 * time.Millisecond
	}
	pid, err := l.controllerPID()
	if err != nil {
		return err
	}
	r.printFigure(
		"%-40s %4s %17s %17s %12s %6s",
		"a neighbour beside",
		"n",
		"sbatch p50/p99",
		"squeue p50/p99",
		"most memory",
		"load",
	)
	for _, p := range pressures(l.o.short) {
		if err := forgetPeak(pid); err != nil {
			return err
		}
		pressing, stop := context.WithTimeout(ctx, length)
		done := make(chan error, 1)
		go func() { done <- p.do(pressing, l) }()
		work := l.neighbourWorks(pressing, r, p.name)
		stop()
		if err := <-done; err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_, resident, err := residentMemory(pid)
		if err != nil {
			return fmt.Errorf("the controller is gone beside %q: %w", p.name, err)
		}
		r.printFigure(
			"%-40s %4d %6.0f / %5.0f ms %6.0f / %5.0f ms %8.0f MiB %6s",
			p.name,
			len(work.sbatch),
			percentile(work.sbatch, 50),
			percentile(work.sbatch, 99),
			percentile(work.squeue, 50),
			percentile(work.squeue, 99),
			float64(resident)/(1<<20),
			machineLoad(),
		)
		r.countTry(
			resident > maxMemory,
			"%s: the controller had %d MiB resident",
			p.name,
			resident>>20,
		)
		if l.o.p99 > 0 {
			slowest := time.Duration(
				max(percentile(work.sbatch, 99), percentile(work.squeue, 99)) *
					float64(time.Millisecond),
			)
			r.countTry(slowest > l.o.p99, "%s: the neighbour waits %s at p99", p.name, slowest)
		}
		for _, uid := range []int{neighbour, attacker} {
			l.runAs(ctx, 0, "scancel", "-u", fmt.Sprint(uid))
		}
		if err := l.awaitAnswer(ctx, "", "squeue", "-h"); err != nil {
			return err
		}
	}
	return nil
}

// work are the times that a neighbour's commands took.
type work struct{ sbatch, squeue []time.Duration }

// neighbourWorks submits and lists until the context ends.
func (l *lab) neighbourWorks(ctx context.Context, r *report, beside string) work {
	var w work
	do := func(times *[]time.Duration, program string, args ...string) {
		// The command that is under way when the time is over is let finish.
		out := l.runProgram(
			context.WithoutCancel(ctx),
			neighbour,
			"",
			filepath.Join(l.o.bin, program),
			args...)
		*times = append(*times, out.took)
		r.countTry(
			out.code != 0,
			"%s: the neighbour's %s fails after %s: %s",
			beside,
			args[0],
			out.took,
			out.allText(),
		)
	}
	for ctx.Err() == nil {
		do(&w.sbatch, "muster-sbatch", "-H", "--wrap", "true")
		do(&w.squeue, "muster", "squeue")
		if len(w.sbatch) >= neighbourJobs {
			<-ctx.Done()
		}
	}
	return w
}

// percentile is in milliseconds, nearest rank.
func percentile(times []time.Duration, percent int) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	at := (len(times)*percent + 99) / 100
	return float64(times[at-1]) / float64(time.Millisecond)
}

// machineLoad is the load average of the last minute.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	load, _, _ := strings.Cut(string(data), " ")
	return load
}

// forgetPeak lets the kernel count the most memory of a process from now on.
func forgetPeak(pid int) error {
	path := fmt.Sprintf("/proc/%d/clear_refs", pid)
	if err := os.WriteFile(path, []byte("5"), 0o600); err != nil {
		return fmt.Errorf("measure the controller's memory: %w", err)
	}
	return nil
}

// dialer opens one connection of an attack.
type dialer func(ctx context.Context, l *lab) (net.Conn, error)

// overTLS shakes hands without a certificate.
func overTLS(dial dialer) dialer {
	return func(ctx context.Context, l *lab) (net.Conn, error) {
		plain, err := dial(ctx, l)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(
			plain,
			&tls.Config{
				MinVersion:         tls.VersionTLS13,
				NextProtos:         []string{framed.ALPN},
				InsecureSkipVerify: true,
			},
		) // the attack is about the client
		if err := secure.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, err
		}
		return secure, nil
	}
}

// hold opens so many connections, sends the same on each, and keeps them. What
// the server refuses is not opened again.
func hold(connections int, dial dialer, first string) func(ctx context.Context, l *lab) error {
	return func(ctx context.Context, l *lab) error {
		var open []net.Conn
		for range connections {
			if ctx.Err() != nil {
				break
			}
			conn, err := dial(ctx, l)
			if err != nil {
				continue // refused
			}
			open = append(open, conn)
			go func() {
				_, err := io.WriteString(conn, first)
				_ = err // refused
				discardAll(conn)
			}()
		}
		<-ctx.Done()
		for _, conn := range open {
			conn.Close()
		}
		return nil
	}
}

// unfinished begins so many large messages of gRPC on one connection after the
// other.
func unfinished(calls int) func(ctx context.Context, l *lab) error {
	return func(ctx context.Context, l *lab) error {
		for ctx.Err() == nil {
			conn, err := l.dialAs(ctx, l.socketPath(), attacker)
			if err != nil {
				return err
			}
			go discardAll(conn)
			for _, portion := range hostile.UnfinishedMessages(calls, 15<<20, 16000) {
				if _, err := conn.Write(portion); err != nil {
					break // the server has ended the connection
				}
			}
			pause(ctx, 20*time.Millisecond)
			conn.Close()
		}
		return nil
	}
}

// repeated does the same on four connections until the context ends. Refusals
// are what the attacks expect.
func repeated(do func(ctx context.Context, l *lab) error) func(ctx context.Context, l *lab) error {
	return func(ctx context.Context, l *lab) error {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if do(ctx, l) != nil {
						pause(ctx, 10*time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		return nil
	}
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// manyValues sends a request in JSON that is expensive to decode.
func manyValues(ctx context.Context, l *lab) error {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return l.dialAs(ctx, l.restSocket(), attacker)
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		"http://rest/v1/Cluster/ListJobs",
		strings.NewReader(hostile.ManyValues(5_000_000)),
	)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// callAsAttacker makes one call of the attacker over a connection of its own.
func (l *lab) callAsAttacker(ctx context.Context, call call) error {
	raw, err := l.dialAs(ctx, l.socketPath(), attacker)
	if err != nil {
		return err
	}
	conn := client.New(raw)
	defer conn.Close()
	return conn.Call(ctx, call.method, call.req, call.rep)
}

// manyTexts sends millions of empty texts, two bytes each, which take sixteen
// and more when they are decoded.
func manyTexts(ctx context.Context, l *lab) error {
	texts := make([]string, 4_000_000)
	return l.callAsAttacker(
		ctx,
		call{
			method: service.Cluster_ListJobs_FullMethodName,
			req:    &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: texts}},
			rep:    &apiv1.ListJobsReply{},
		},
	)
}

// manyDirectives has the controller read a script that begins with many options.
func manyDirectives(ctx context.Context, l *lab) error {
	script := "#!/bin/sh\n" + strings.Repeat("#SBATCH -J x\n", 300_000) + "true\n"
	path := filepath.Join(l.home[attacker], "many.sh")
	request := &apiv1.TypedCommand{
		Args:        []byte("-H\x00" + path + "\x00"),
		Environment: []byte("PATH=/bin\x00"),
		Dir:         []byte(l.home[attacker]),
		Host:        []byte("here"),
		Umask:       0o22,
		ScriptArg:   []byte(path),
		ScriptPath:  []byte(path),
		Script:      []byte(script),
	}
	return l.callAsAttacker(
		ctx,
		call{method: service.Shell_Sbatch_FullMethodName, req: request, rep: &apiv1.TypedAnswer{}},
	)
}

// questions asks for everything on many connections, as fast as answers come.
func questions(ctx context.Context, l *lab) error {
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c := call{
					method: service.Cluster_ListJobs_FullMethodName,
					req: &apiv1.ListJobsRequest{
						Filter: &apiv1.JobFilter{AllStates: true},
						Detail: true,
					},
					rep: &apiv1.ListJobsReply{},
				}
				if l.callAsAttacker(ctx, c) != nil {
					pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// fillQueue submits jobs until none is taken any more, and then goes on.
func fillQueue(ctx context.Context, l *lab) error {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { l.submitUntil(ctx) })
	}
	wg.Wait()
	return nil
}

// submitUntil submits one job after the other until the context ends.
func (l *lab) submitUntil(ctx context.Context) {
	raw, err := l.dialAs(ctx, l.socketPath(), attacker)
	if err != nil {
		return // refused
	}
	conn := client.New(raw)
	defer conn.Close()
	for ctx.Err() == nil {
		request := &apiv1.SubmitRequest{
			Spec:   &apiv1.JobSpec{Name: "many", Hold: true, WorkDir: "/"},
			Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")},
		}
		if conn.Call(
			ctx, service.Cluster_Submit_FullMethodName, request, &apiv1.SubmitReply{},
		) != nil {
			pause(ctx, 5*time.Millisecond)
		}
	}
}
