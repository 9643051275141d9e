// Command attack attacks a cluster of its own on this machine, as an ordinary
// user who wants what is not his, and prints for each kind of attack how often it
// was tried and how often it succeeded. It exits with 1 if any attack did.
//
// The cluster lives in a temporary folder and listens on the loopback only. The
// users are numbers that no user of the machine has, so the program must be able
// to become them: run it as root, or as root of a user namespace that has more
// than one user (unshare --map-auto --map-root-user).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	bin   string
	only  string
	short bool
	p99   time.Duration
	limit time.Duration
}

// attack is one kind of attack.
type attack struct {
	kind  string
	about string
	run   func(ctx context.Context, l *lab, r *report) error
}

// attacks are all kinds, in the order in which they are run: those that leave
// the least behind come first.
func attacks() []attack {
	return []attack{
		{
			"hidden",
			"whether a user can tell another's job from no job, or see a trace of it",
			attackHidden,
		},
		{"tokens", "forged, altered and stolen tokens over REST", attackTokens},
		{"certificates", "false certificates and statements about who asks", attackCertificates},
		{"sql", "questions of muster sql that reach beyond its views", attackSQL},
		{
			"files",
			"files of root and of other users, by way of jobs and of the daemons' folders",
			attackFiles,
		},
		{
			"exhaustion",
			"connections, bytes, values and jobs of one user, beside a neighbour",
			attackExhaustion,
		},
	}
}

// Exit codes.
const (
	exitHeld   = 0
	exitBreach = 1
	exitFailed = 2 // the attacks could not be made
)

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`folder` of the programs")
	flag.StringVar(&o.only, "only", "", "`kinds` of attacks to make, with commas (default: all)")
	flag.BoolVar(
		&o.short,
		"short",
		false,
		"fewer tries of those attacks that are a matter of number",
	)
	flag.DurationVar(
		&o.p99,
		"p99",
		0,
		"count it as a breach if the neighbour's commands take longer than this at p99 (default: they are only measured)",
	)
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "longest `time` for everything")
	flag.Parse()
	signal.Ignore(syscall.SIGPIPE) // whoever reads the report may leave before the cluster is down
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	code := run(ctx, &o)
	cancel()
	stop()
	os.Exit(code)
}

func run(ctx context.Context, o *options) int {
	l, err := newLab(ctx, o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "attack: %v\n", err)
		return exitFailed
	}
	defer l.stopLab()
	r := &report{out: os.Stdout, tries: map[string]int{}, breaches: map[string]int{}}
	var only []string
	if o.only != "" {
		only = strings.Split(o.only, ",")
	}
	for _, a := range attacks() {
		if only != nil && !slices.Contains(only, a.kind) {
			continue
		}
		began := time.Now()
		r.kind = a.kind
		r.kinds = append(r.kinds, a.kind)
		fmt.Fprintf(r.out, "%s: %s\n", a.kind, a.about)
		if err := a.run(ctx, l, r); err != nil {
			fmt.Fprintf(
				os.Stderr,
				"attack: %s: %v (logs are in %s)\n",
				a.kind,
				err,
				filepath.Join(l.dir, "run"),
			)
			l.keep = true
			return exitFailed
		}
		if err := l.checkAlive(ctx); err != nil {
			r.countTry(true, "the controller does not answer after these attacks: %v", err)
		}
		fmt.Fprintf(
			r.out,
			"%s: %d tries, %d breaches, %.1f s\n\n",
			a.kind,
			r.tries[a.kind],
			r.breaches[a.kind],
			time.Since(began).Seconds(),
		)
	}
	return r.summary()
}

// report counts tries and breaches.
type report struct {
	out      *os.File
	kind     string
	kinds    []string
	tries    map[string]int
	breaches map[string]int
}

// countTry counts one try of the present kind. What succeeded is printed.
func (r *report) countTry(breach bool, format string, args ...any) {
	r.tries[r.kind]++
	if breach {
		r.breaches[r.kind]++
		fmt.Fprintf(r.out, "  BREACH: "+format+"\n", args...)
	}
}

// printFigure prints a figure.
func (r *report) printFigure(format string, args ...any) {
	fmt.Fprintf(r.out, "  "+format+"\n", args...)
}

// summary prints the table and gives the exit code.
func (r *report) summary() int {
	tries, breaches := 0, 0
	fmt.Fprintf(r.out, "%-14s %8s %8s\n", "kind", "tries", "breaches")
	for _, kind := range r.kinds {
		fmt.Fprintf(r.out, "%-14s %8d %8d\n", kind, r.tries[kind], r.breaches[kind])
		tries += r.tries[kind]
		breaches += r.breaches[kind]
	}
	fmt.Fprintf(r.out, "%-14s %8d %8d\n", "all", tries, breaches)
	if breaches > 0 {
		return exitBreach
	}
	return exitHeld
}
