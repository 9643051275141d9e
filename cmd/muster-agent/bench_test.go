package main

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// BenchmarkJobs runs no-op batch jobs through the agent and the real shepherd,
// with a controller in the same process that keeps a number of jobs on the
// node, as a scheduler would. jobs/s counts ends that the controller has.
func BenchmarkJobs(b *testing.B) {
	const onNode = 64
	l := newLab(b)
	l.up()
	script := "#!/bin/sh\nexit 0\n"
	orders := make([]*apiv1.Order, b.N)
	for i := range orders {
		orders[i] = l.job(key(uint64(i)+1), script, func(o *apiv1.Launch, js *spec.JobSpec) {
			js.IO.Stdout = "/dev/null"
			o.Environment = benchEnv()
		})
	}
	b.ResetTimer()
	sent := min(onNode, b.N)
	l.order(orders[:sent]...)
	for done := 0; done < b.N; {
		l.mu.Lock()
		for len(l.done) == done {
			l.cond.Wait()
		}
		done = len(l.done)
		l.mu.Unlock()
		if more := min(done+onNode, b.N); more > sent {
			l.order(orders[sent:more]...)
			sent = more
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	for k, d := range l.done {
		if exitOf(d[0]) != "0:0" {
			b.Fatalf("%s ended %s", k, exitOf(d[0]))
		}
	}
}

// benchEnv is an environment of 8 KiB.
func benchEnv() []byte {
	var env []byte
	env = append(env, "PATH=/usr/bin:/bin\x00HOME=/\x00"...)
	for i := range 80 {
		env = append(env, "VARIABLE_"+string(rune('A'+i%26))+string(rune('A'+i/26))+"="...)
		for range 86 {
			env = append(env, 'x')
		}
		env = append(env, 0)
	}
	return env
}
