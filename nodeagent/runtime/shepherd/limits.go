//go:build linux

package shepherd

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"golang.org/x/sys/unix"
)

// limits are the resource limits that jobs inherit from the shepherd.
type limits struct {
	own      [16]unix.Rlimit
	mayRaise bool // CAP_SYS_RESOURCE: hard limits can be raised
}

func ownLimits() limits {
	var l limits
	for i := range l.own {
		_ = unix.Getrlimit(i, &l.own[i])
	}
	// The Go runtime raises its own soft limit of open files. A program that
	// the standard library starts gets the original back; ask one.
	if out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output(); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64); err == nil {
			l.own[unix.RLIMIT_NOFILE].Cur = n
		}
	} else {
		l.own[unix.RLIMIT_NOFILE].Cur = min(1024, l.own[unix.RLIMIT_NOFILE].Max)
	}
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
				caps, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
				l.mayRaise = caps&(1<<unix.CAP_SYS_RESOURCE) != 0
			}
		}
	}
	return l
}

// applyLimits turns what is asked for into limits that can be set. A soft limit above
// the hard one is cut to it. If the user named the limit, it is the node's instead,
// and the user is told, as Slurm does.
func (l *limits) applyLimits(want []plan.Rlimit) (rlimits []spawn.Rlimit, warnings []string) {
	nofile := spawn.Rlimit{
		Resource: unix.RLIMIT_NOFILE,
		Soft:     l.own[unix.RLIMIT_NOFILE].Cur,
		Hard:     l.own[unix.RLIMIT_NOFILE].Max,
	}
	for _, w := range want {
		if w.Resource < 0 || int(w.Resource) >= len(l.own) {
			warnings = append(
				warnings,
				fmt.Sprintf("resource limit %d is not known on this node", w.Resource),
			)
			continue
		}
		own := l.own[w.Resource]
		rlimit := spawn.Rlimit{Resource: int(w.Resource), Soft: w.Soft, Hard: w.Hard}
		if rlimit.Hard == plan.RlimitKeep {
			rlimit.Hard = own.Max
		}
		if rlimit.Hard > own.Max && !l.mayRaise {
			rlimit.Hard = own.Max
		}
		if rlimit.Soft == plan.RlimitKeep {
			rlimit.Soft = min(own.Cur, rlimit.Hard)
		}
		if rlimit.Soft > rlimit.Hard {
			if w.Asked {
				warnings = append(
					warnings,
					fmt.Sprintf("Can't propagate RLIMIT_%s of %s from submit host: Invalid argument",
						w.Name(), limitText(rlimit.Soft)),
				)
				rlimit.Soft = own.Cur
			}
			rlimit.Soft = min(rlimit.Soft, rlimit.Hard)
		}
		if rlimit.Resource == unix.RLIMIT_NOFILE {
			nofile = rlimit
			continue
		}
		rlimits = append(rlimits, rlimit)
	}
	return append(rlimits, nofile), warnings
}

func limitText(value uint64) string {
	if value == plan.RlimitInfinity {
		return "unlimited"
	}
	return strconv.FormatUint(value, 10)
}
