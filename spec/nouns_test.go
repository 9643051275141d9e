package spec

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestReasonCodes(t *testing.T) {
	codes := ReasonCodes()
	if len(codes) != 216 {
		t.Errorf("%d codes, Slurm 25.11 has 216", len(codes))
	}
	known := make(map[ReasonCode]bool)
	for _, c := range codes {
		if known[c] {
			t.Errorf("%s is listed twice", c)
		}
		known[c] = true
	}
	used := []ReasonCode{ReasonNone, ReasonPriority, ReasonResources, ReasonDependency, ReasonDependencyNever, ReasonBeginTime, ReasonHeldUser,
		ReasonHeldAdmin, ReasonHoldMaxRequeue, ReasonArrayTaskLimit, ReasonLicenses, ReasonReqNodeNotAvail, ReasonPartitionDown,
		ReasonPartitionInactive, ReasonPartitionNodeLimit, ReasonPartitionTimeLimit, ReasonPartitionConfig, ReasonBadConstraints,
		ReasonInvalidAccount, ReasonInvalidQOS, ReasonQOSNotAllowed, ReasonAccountNotAllowed, ReasonCleaning, ReasonReservation, ReasonDeadLine,
		ReasonNodeDown, ReasonNonZeroExit, ReasonRaisedSignal, ReasonTimeLimit, ReasonOutOfMemory, ReasonLaunchFailure, ReasonSystemFailure,
		ReasonQOSGrpJobs, ReasonQOSGrpSubmit, ReasonQOSGrpWall, ReasonQOSMaxJobsUser, ReasonQOSMaxSubmitUser, ReasonQOSMaxWall, ReasonAssocGrpJobs,
		ReasonAssocGrpSubmit, ReasonAssocGrpWall, ReasonAssocMaxJobs, ReasonAssocMaxSubmit, ReasonAssocMaxWall, ReasonMaxJobsAccount, ReasonMaxSubmitAccount}
	for _, c := range used {
		if !known[c] {
			t.Errorf("%s is not a reason of Slurm's", c)
		}
	}
	for _, c := range []ReasonCode{ReasonUnknownExit, ReasonFencingWait} {
		if known[c] {
			t.Errorf("%s is Muster's own, yet Slurm has it", c)
		}
	}
}

// TestLimitReasons: every limit on every resource has a name of Slurm's, and
// every such name that Slurm has is used.
func TestLimitReasons(t *testing.T) {
	codes := ReasonCodes()
	made := make(map[ReasonCode]bool)
	for _, scope := range LimitScopes() {
		for _, tres := range []string{"cpu", "mem", "node", "energy", "billing", "gres/gpu", "gres/gpu:h100", "license/matlab", "bb/x", "fs/disk"} {
			c := LimitReason(scope, tres)
			made[c] = true
			if !slices.Contains(codes, c) {
				t.Errorf("%s of %s is called %s, which Slurm does not know", scope, tres, c)
			}
		}
	}
	for tres, want := range map[string]ReasonCode{"gres/gpu": "QOSMaxGRESPerUser", "cpu": "QOSMaxCpuPerUserLimit", "mem": "QOSMaxMemoryPerUser", "license/x": "QOSMaxLicensePerUser"} {
		if got := LimitReason(ScopeQOSMaxPerUser, tres); got != want {
			t.Errorf("%s: %s, want %s", tres, got, want)
		}
	}
	limits := regexp.MustCompile(`^(QOS|Assoc)(Grp|Max|Min)|^Max.*Per(Account|User)$`)
	others := regexp.MustCompile(`Jobs|SubmitJob|Wall`) // limits on jobs and time
	for _, c := range codes {
		if limits.MatchString(string(c)) && !others.MatchString(string(c)) && !made[c] {
			t.Errorf("no limit on a resource is called %s", c)
		}
	}
}

func TestReasonText(t *testing.T) {
	for _, tt := range []struct {
		r    Reason
		want string
	}{
		{Reason{}, "None"},
		{Reason{Code: ReasonPriority}, "Priority"},
		{Reason{Code: ReasonReqNodeNotAvail, Detail: "UnavailableNodes:n1"}, "ReqNodeNotAvail, UnavailableNodes:n1"},
	} {
		if got := tt.r.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	r := Reason{Code: "QOSMaxGRESPerUser", TRES: "gres/gpu", Limit: 4, Used: 4, Asked: 1}
	for name, tt := range map[string]struct {
		change func(r *Reason)
		same   bool
	}{
		"used":    {func(r *Reason) { r.Used = 3 }, true},
		"asked":   {func(r *Reason) { r.Asked = 2 }, true},
		"limit":   {func(r *Reason) { r.Limit = 5 }, false},
		"tres":    {func(r *Reason) { r.TRES = "cpu" }, false},
		"subject": {func(r *Reason) { r.Subject = "qos/x" }, false},
		"code":    {func(r *Reason) { r.Code = ReasonPriority }, false},
	} {
		s := r
		tt.change(&s)
		if r.Same(s) != tt.same {
			t.Errorf("another %s: the same is %v", name, !tt.same)
		}
	}
}

// TestCodes: every code that is declared has a text, none two codes share.
func TestCodes(t *testing.T) {
	seen := make(map[string]Code)
	for c := range Code(11_000) {
		text := c.String()
		if text == "Unspecified error" {
			continue
		}
		if other, twice := seen[text]; twice {
			t.Errorf("codes %d and %d are both %q", other, c, text)
		}
		seen[text] = c
	}
	if len(seen) != len(codeTexts) {
		t.Errorf("%d texts of %d", len(seen), len(codeTexts))
	}
	for c, want := range map[Code]string{ // as a real sbatch printed them
		2000: "Invalid partition name specified", 2014: "Requested node configuration is not available",
		2029: "Invalid feature specification", 2038: "Job dependency problem", 2018: "Invalid node name specified",
		2045: "Invalid account or account/partition combination specified", 2066: "Invalid qos specification",
		2072: "Invalid generic resource (gres) specification", 2081: "Invalid job array specification", 2017: "Invalid job id specified",
	} {
		if c.String() != want {
			t.Errorf("code %d is %q, want %q", c, c, want)
		}
	}
}

func TestErrors(t *testing.T) {
	e := Refuse(CodeInvalidQOS, "qos nosuch")
	wrapped := fmt.Errorf("submit: %w", e)
	if got, want := e.Error(), "Invalid qos specification: qos nosuch"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Refuse(CodeInvalidQOS, "").Error(); got != "Invalid qos specification" {
		t.Errorf("%q", got)
	}
	if CodeOf(wrapped) != CodeInvalidQOS || CodeOf(errors.New("x")) != 0 || CodeOf(nil) != 0 || e.Code() != 2066 {
		t.Errorf("%d, %d", CodeOf(wrapped), e.Code())
	}
	if !errors.Is(wrapped, &Error{Kind: CodeInvalidQOS}) || errors.Is(wrapped, &Error{Kind: CodeInvalidAccount}) {
		t.Error("errors.Is does not compare codes")
	}
}

func TestJobStates(t *testing.T) {
	for _, s := range JobStates() {
		for _, name := range []string{s.String(), s.Compact()} {
			if got, ok := ParseJobState(name); !ok || got != s {
				t.Errorf("%s reads as %s", name, got)
			}
		}
		if s.Terminal() == (s == Pending || s.Active()) {
			t.Errorf("%s: terminal %v, active %v", s, s.Terminal(), s.Active())
		}
	}
	if s, ok := ParseJobState("node_fail"); !ok || s != NodeFailed {
		t.Errorf("%s, %v", s, ok)
	}
	if _, ok := ParseJobState("x"); ok || JobState(0).String() != "UNKNOWN" || JobState(99).Compact() != "UNKNOWN" {
		t.Error("an unknown state has a name")
	}
}

func TestInstants(t *testing.T) {
	for _, tt := range []struct {
		at   Instant
		d    Span
		want Instant
	}{
		{5, 7, 12}, {5, -7, -2}, {5, Infinite, FarFuture}, {FarFuture - 3, 5, FarFuture}, {FarFuture, 1, FarFuture}, {-5, 5, 0},
	} {
		if got := tt.at.Add(tt.d); got != tt.want {
			t.Errorf("%d + %d is %d, want %d", tt.at, tt.d, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		sec := rapid.Int64Range(-9e9, 9e9).Draw(t, "seconds")
		below := rapid.Int64Range(0, 999_999_999).Draw(t, "ns")
		if got := (AtUnix(sec) + Instant(below)).Unix(); got != sec {
			t.Fatalf("%d s and %d ns are %d whole seconds", sec, below, got)
		}
	})
	if Seconds(math.MaxInt64) != Infinite || Infinite.Seconds() != math.MaxInt64 || Seconds(90).Seconds() != 90 {
		t.Error("seconds do not keep infinity")
	}
	if (90*Minute).Seconds() != 5400 || Instant(Day).Sub(Instant(Hour)) != 23*Hour || !Instant(0).IsZero() {
		t.Error("units")
	}
}

// TestUsageAdd: parts of an attempt add up in any order.
func TestUsageAdd(t *testing.T) {
	part := func(t *rapid.T) Usage {
		u := Usage{UserCPU: Span(rapid.IntRange(0, 9).Draw(t, "cpu")), PeakRSS: rapid.Int64Range(0, 9).Draw(t, "rss"), HasRSS: rapid.Bool().Draw(t, "has"),
			EnergyMJ: rapid.Int64Range(0, 9).Draw(t, "mj"), OOMKilled: rapid.Bool().Draw(t, "oom")}
		for _, id := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, id) {
				u.GPUs = append(u.GPUs, GPUUsage{UUID: id, Busy: Span(rapid.IntRange(0, 9).Draw(t, "busy")), PeakMem: rapid.Int64Range(0, 9).Draw(t, "mem")})
			}
		}
		return u
	}
	gpu := func(u Usage, id string) GPUUsage {
		for _, g := range u.GPUs {
			if g.UUID == id {
				return g
			}
		}
		return GPUUsage{UUID: id}
	}
	rapid.Check(t, func(t *rapid.T) {
		u, v := part(t), part(t)
		uv, vu := u.Add(v), v.Add(u)
		if uv.UserCPU != u.UserCPU+v.UserCPU || uv.PeakRSS != max(u.PeakRSS, v.PeakRSS) || uv.HasRSS != (u.HasRSS || v.HasRSS) ||
			uv.EnergyMJ != u.EnergyMJ+v.EnergyMJ || uv.OOMKilled != (u.OOMKilled || v.OOMKilled) {
			t.Fatalf("%+v and %+v give %+v", u, v, uv)
		}
		for _, id := range []string{"a", "b", "c"} {
			a, b, sum := gpu(u, id), gpu(v, id), gpu(uv, id)
			if sum.Busy != a.Busy+b.Busy || sum.PeakMem != max(a.PeakMem, b.PeakMem) || sum != gpu(vu, id) {
				t.Fatalf("GPU %s: %+v and %+v give %+v, the other way %+v", id, a, b, sum, gpu(vu, id))
			}
		}
	})
}

func TestSmallNouns(t *testing.T) {
	q := QOS{Flags: []string{"DenyOnLimit"}}
	if !q.HasFlag("denyonlimit") || q.HasFlag("NoReserve") {
		t.Error("flags of a QOS")
	}
	if !Yes.Or(false) || No.Or(true) || !Unset.Or(true) || Unset.Or(false) {
		t.Error("three answers")
	}
	for id, want := range map[StepID]string{StepBatch: "batch", StepExtern: "extern", StepInteractive: "interactive", 7: "7"} {
		if id.String() != want {
			t.Errorf("step %d is %s, want %s", int32(id), id, want)
		}
	}
	a := Allocation{Nodes: []NodeAlloc{{Name: "n1", GPUs: []GPURef{{}, {}}}, {Name: "n2", GPUs: []GPURef{{}}}}}
	if a.GPUCount() != 3 || !slices.Equal(a.NodeNames(), []string{"n1", "n2"}) {
		t.Error("an allocation's nodes or GPUs")
	}
	c := Count{Name: "gpu", Type: "h100"}
	if c.TRES() != "gres/gpu" || c.TypedTRES() != "gres/gpu:h100" || (Count{Name: "gpu"}).TypedTRES() != "" {
		t.Error("the TRES of a count")
	}
	if !(Hash{}).IsZero() || (Hash{31: 1}).IsZero() || len(Hash{}.String()) != 64 {
		t.Error("hashes")
	}
	if !(ExitStatus{}).OK() || (ExitStatus{Signal: 9}).OK() || (ExitStatus{Code: 1}).OK() {
		t.Error("exit states")
	}
	for s, want := range map[PartitionState]string{PartitionUp: "UP", PartitionDown: "DOWN", PartitionDrain: "DRAIN", PartitionInactive: "INACTIVE", 9: "UNKNOWN"} {
		if s.String() != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
}

func TestMeanKHz(t *testing.T) {
	const year = 365 * 24 * Hour
	for _, c := range []struct {
		a    int64
		cpuA Span
		b    int64
		cpuB Span
		want int64
	}{
		{0, Second, 0, Second, 0}, {0, Second, 3, 0, 3}, {5, 0, 0, Second, 5}, {2_000_000, Second, 3_000_000, 3 * Second, 2_750_000},
		{3_000_000, 0, 2_000_000, 0, 2_500_000}, {2_000_000, 200 * year, 3_000_000, 200 * year, 2_500_000}, {1, Second, 1 << 62, 0, 1}, {1 << 62, 0, 1, Second, 1},
	} {
		if got := MeanKHz(c.a, c.cpuA, c.b, c.cpuB); got != c.want {
			t.Errorf("%d over %d and %d over %d: %d, want %d", c.a, c.cpuA, c.b, c.cpuB, got, c.want)
		}
	}
}

// A job that comes to ask for more than the whole limit waits for another
// reason than before, though code and limit are the same.
func TestReasonHopeless(t *testing.T) {
	shared := Reason{Code: "QOSMaxCpuPerUserLimit", TRES: "cpu", Limit: 7, Used: 6, Asked: 2}
	busier := Reason{Code: "QOSMaxCpuPerUserLimit", TRES: "cpu", Limit: 7, Used: 7, Asked: 2}
	alone := Reason{Code: "QOSMaxCpuPerUserLimit", TRES: "cpu", Limit: 7, Used: 0, Asked: 14}
	if !shared.Same(busier) || shared.Same(alone) || alone.Same(shared) {
		t.Errorf("same: shared and busier %v, shared and alone %v", shared.Same(busier), shared.Same(alone))
	}
	if shared.Hopeless() || !alone.Hopeless() {
		t.Error("only the job that alone exceeds the limit is hopeless")
	}
}
