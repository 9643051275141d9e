package pmi

import (
	"fmt"
	"strconv"
)

// refused is what a program is told that wants what is not served.
const refused = "this PMI server does not do that"

// answerPMI1 answers a command of PMI-1.
func (s *Server) answerPMI1(local int, m message, result *Result) error {
	t := &s.tasks[local]
	if t.spawn { // all its lines but the last
		if m.cmd != "" || len(m.pairs) == 0 || m.pairs[0][0] != "endcmd" {
			return nil
		}
		t.spawn = false
		result.addAnswer(local, "cmd=spawn_result rc=-1 msg=not_served\n")
		return nil
	}
	switch m.cmd {
	case "get_maxes":
		result.addAnswer(local, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n")
	case "get_appnum":
		result.addAnswer(local, "cmd=appnum rc=0 appnum=0\n")
	case "get_universe_size":
		result.addAnswer(local, "cmd=universe_size rc=0 size="+s.stepSize()+"\n")
	case "get_my_kvsname":
		result.addAnswer(local, "cmd=my_kvsname rc=0 kvsname="+s.cfg.Job+"\n")
	case "put":
		rc := "0 msg=success"
		if err := s.storeKey(s.put, m.get("key"), m.get("value")); err != nil {
			rc = "-1 msg=not_stored"
		}
		result.addAnswer(local, "cmd=put_result rc="+rc+"\n")
	case "get":
		if v, ok := s.lookUpKey(m.get("key")); ok {
			result.addAnswer(local, "cmd=get_result rc=0 msg=success value="+v+"\n")
		} else {
			result.addAnswer(local, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n")
		}
	case "barrier_in":
		s.noteFence(local, result)
	case "finalize":
		t.over = true
		result.addAnswer(local, "cmd=finalize_ack rc=0\n")
	case "abort":
		s.abortStep(m, result, "exitcode", "error_msg")
	case "spawn":
		t.spawn = true
	case "getbyidx":
		result.addAnswer(local, "cmd=getbyidx_results rc=-1 reason=not_served\n")
	case "publish_name", "unpublish_name", "lookup_name":
		verb := map[string]string{"publish_name": "publish", "unpublish_name": "unpublish", "lookup_name": "lookup"}[m.cmd]
		result.addAnswer(local, "cmd="+verb+"_result rc=-1 msg=not_served\n")
	default:
		return fmt.Errorf("%w: the command %q is not known", ErrProtocol, m.cmd)
	}
	return nil
}

// answerThread answers a command of PMI-2, for the thread that asked.
func (s *Server) answerThread(local int, result *Result, cmd string, pairs ...string) {
	head := []string{"cmd", cmd}
	if t := s.tasks[local].thread; t != "" {
		head = append(head, "thrid", t)
	}
	result.addAnswer(local, formatSecond(append(head, pairs...)...))
}

// answerPMI2 answers a command of PMI-2.
func (s *Server) answerPMI2(local int, m message, result *Result) error {
	t := &s.tasks[local]
	reply := m.cmd + "-response"
	found := func(v string, ok bool) {
		if ok {
			s.answerThread(local, result, reply, "found", "TRUE", "value", v, "rc", "0")
		} else {
			s.answerThread(local, result, reply, "found", "FALSE", "rc", "0")
		}
	}
	done := func(err error) {
		if err != nil {
			s.answerThread(local, result, reply, "rc", "1", "errmsg", err.Error())
		} else {
			s.answerThread(local, result, reply, "rc", "0")
		}
	}
	switch m.cmd {
	case "fullinit":
		s.answerThread(
			local,
			result,
			reply,
			"rc",
			"0",
			"pmi-version",
			"2",
			"pmi-subversion",
			"0",
			"rank",
			strconv.FormatUint(uint64(s.cfg.Ranks[local]), 10),
			"size",
			s.stepSize(),
			"appnum",
			"0",
			"debugged",
			"FALSE",
			"pmiverbose",
			"FALSE",
		)
	case "finalize":
		t.over = true
		done(nil)
	case "abort":
		s.abortStep(m, result, "exitcode", "msg")
	case "job-getid":
		s.answerThread(local, result, reply, "jobid", s.cfg.Job, "rc", "0")
	case "info-getjobattr":
		switch m.get("key") {
		case processMapping:
			found(s.cfg.Mapping, true)
		case "universeSize":
			found(s.stepSize(), true)
		default:
			found("", false)
		}
	case "info-putnodeattr":
		key, value := m.get("key"), m.get("value")
		err := s.storeKey(s.attr, key, value)
		done(err)
		if err == nil {
			s.answerWaiting(key, value, result)
		}
	case "info-getnodeattr":
		key := m.get("key")
		if v, ok := s.attr[key]; ok || m.get("wait") != "TRUE" {
			found(v, ok)
		} else {
			t.wants = key
		}
	case "kvs-put":
		done(s.storeKey(s.put, m.get("key"), m.get("value")))
	case "kvs-get":
		found(s.lookUpKey(m.get("key")))
	case "kvs-fence":
		s.noteFence(local, result)
	case "spawn",
		"name-publish",
		"name-unpublish",
		"name-lookup",
		"job-connect",
		"job-disconnect",
		"ring":
		s.answerThread(local, result, reply, "rc", "1", "errmsg", refused)
	default:
		return fmt.Errorf("%w: the command %q is not known", ErrProtocol, m.cmd)
	}
	return nil
}

// answerWaiting answers who waits for an attribute of the node.
func (s *Server) answerWaiting(key, value string, result *Result) {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.wants == key {
			t.wants = ""
			s.answerThread(
				i,
				result,
				"info-getnodeattr-response",
				"found",
				"TRUE",
				"value",
				value,
				"rc",
				"0",
			)
		}
	}
}
