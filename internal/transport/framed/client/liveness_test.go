package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// silentServer reads what it is sent and never answers, as a stopped process
// does whose kernel still takes bytes.
func silentServer(t *testing.T) *Client {
	t.Helper()
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	c := New(near)
	t.Cleanup(func() {
		_ = c.Close()
		_ = far.Close()
	})
	return c
}

// TestSilentServer: a call to a server that is stopped ends within the ten
// seconds that the documentation promises, whatever its own limit is.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := silentServer(t)
		began := time.Now()
		err := c.Call(context.Background(), "/muster.v1.Cluster/Diag", &apiv1.DiagRequest{}, &apiv1.DiagReply{})
		var refused *framed.StatusError
		if !errors.As(err, &refused) || refused.Wire != rpcstatus.Unavailable {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != quietPeriod+pingPeriod {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWatched: a client may give a silent server up sooner, and name it by an error of its own,
// also where it sends headers.
func TestWatched(t *testing.T) {
	errAsleep := errors.New("the library is asleep")
	synctest.Test(t, func(t *testing.T) {
		var told time.Duration
		asleep := func(after time.Duration) error { told = after; return errAsleep }
		watch := Watch{Quiet: 2 * time.Second, Ping: time.Second, Silent: asleep}
		c := silentServer(t).Watched(watch).With(framed.Pair{Key: framed.HeaderToken, Value: "t"})
		began := time.Now()
		err := c.Call(context.Background(), "/muster.v1.Accounting/Jobs", &apiv1.AcctQuery{}, &apiv1.AcctReply{})
		if took := time.Since(began); !errors.Is(err, errAsleep) || took != 3*time.Second || told != took {
			t.Errorf("error %v after %v, told %v", err, took, told)
		}
	})
}

// TestSlowAnswer: a server that answers pings may take its time over a call.
func TestSlowAnswer(t *testing.T) {
	const slow = time.Minute
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go answerSlowly(far, slow, slow)
		c := New(near)
		defer func() { _ = c.Close(); _ = far.Close() }()
		began := time.Now()
		err := c.Call(context.Background(), "/muster.v1.Cluster/Diag", &apiv1.DiagRequest{}, &apiv1.DiagReply{})
		if took := time.Since(began); err != nil || took != slow {
			t.Errorf("error %v after %v", err, took)
		}
	})
}

// TestStoppedLater: a server that is stopped while it works on a call is given up as well.
func TestStoppedLater(t *testing.T) {
	const stopped = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go answerSlowly(far, time.Hour, stopped)
		c := New(near)
		defer func() { _ = c.Close(); _ = far.Close() }()
		began := time.Now()
		err := c.Call(context.Background(), "/muster.v1.Cluster/Diag", &apiv1.DiagRequest{}, &apiv1.DiagReply{})
		var refused *framed.StatusError
		if !errors.As(err, &refused) || refused.Wire != rpcstatus.Unavailable {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took < stopped || took > stopped+quietPeriod+pingPeriod {
			t.Errorf("it took %v", took)
		}
	})
}

// answerSlowly answers pings at once until it is stopped, and everything else after a while.
func answerSlowly(conn net.Conn, slow, stopped time.Duration) {
	began := time.Now()
	preface := make([]byte, len(framed.Preface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	out := framed.NewWriter(conn, "", 1<<20, time.Minute)
	in := framed.NewReader(conn, bufio.NewReader(conn))
	for {
		var f framed.Frame
		if _, err := in.Next(&f); err != nil {
			return
		}
		if f.Kind != framed.Request {
			continue
		}
		id, wait := f.ID, slow
		if f.Method == methodPing {
			wait = 0
		}
		if time.Since(began) > stopped {
			continue
		}
		time.AfterFunc(wait, func() {
			_ = out.Write(context.Background(), &framed.Frame{Kind: framed.Message, ID: id, Last: true})
		})
	}
}
