package spec

// QOS is a quality of service: a priority and limits. A nil limit pointer or
// an absent Limits entry does not limit; 0 allows nothing.
type QOS struct {
	ID               uint32   `cbor:"1,keyasint"`
	Name             string   `cbor:"2,keyasint"`
	Description      string   `cbor:"3,keyasint,omitempty"`
	Priority         uint32   `cbor:"4,keyasint,omitempty"`
	Flags            []string `cbor:"5,keyasint,omitempty"` // DenyOnLimit, NoReserve, …
	MaxWall          Span     `cbor:"6,keyasint,omitempty"` // 0 = none
	MaxTRESPerJob    Limits   `cbor:"7,keyasint,omitempty"`
	MaxTRESPerNode   Limits   `cbor:"8,keyasint,omitempty"`
	MaxTRESPerUser   Limits   `cbor:"9,keyasint,omitempty"`
	MaxTRESPerAcct   Limits   `cbor:"10,keyasint,omitempty"`
	MinTRESPerJob    Limits   `cbor:"11,keyasint,omitempty"`
	GrpTRES          Limits   `cbor:"12,keyasint,omitempty"`
	GrpTRESMins      Limits   `cbor:"13,keyasint,omitempty"`
	GrpTRESRunMins   Limits   `cbor:"14,keyasint,omitempty"`
	GrpWall          Span     `cbor:"15,keyasint,omitempty"`
	GrpJobs          *int64   `cbor:"16,keyasint,omitempty"`
	GrpSubmitJobs    *int64   `cbor:"17,keyasint,omitempty"`
	MaxJobsPerUser   *int64   `cbor:"18,keyasint,omitempty"`
	MaxSubmitPerUser *int64   `cbor:"19,keyasint,omitempty"`
	MaxJobsPerAcct   *int64   `cbor:"20,keyasint,omitempty"`
	MaxSubmitPerAcct *int64   `cbor:"21,keyasint,omitempty"`
	GraceTime        Span     `cbor:"22,keyasint,omitempty"`
	Preempt          []string `cbor:"23,keyasint,omitempty"`
	PreemptMode      string   `cbor:"24,keyasint,omitempty"`
	UsageFactor      int64    `cbor:"25,keyasint,omitempty"` // millionths; 0 = 1, negative = 0: see Factor
	MinPrio          *int64   `cbor:"26,keyasint,omitempty"` // a job below this priority does not start
	MaxTRESMins      Limits   `cbor:"27,keyasint,omitempty"` // of one job
	MaxRunMinsAcct   Limits   `cbor:"28,keyasint,omitempty"` // MaxTRESRunMinsPerAccount
	MaxRunMinsUser   Limits   `cbor:"29,keyasint,omitempty"` // MaxTRESRunMinsPerUser
	GrpJobsAccrue    *int64   `cbor:"30,keyasint,omitempty"`
	MaxAccruePerUser *int64   `cbor:"31,keyasint,omitempty"`
	MaxAccruePerAcct *int64   `cbor:"32,keyasint,omitempty"`
	LimitFactor      int64    `cbor:"33,keyasint,omitempty"` // millionths, on limits of associations; 0 = none
	UsageThreshold   *int64   `cbor:"34,keyasint,omitempty"` // millionths of fair share
	PreemptExempt    Span     `cbor:"40,keyasint,omitempty"` // 0 = the cluster's
}

// Factor is UsageFactor in millionths.
func (q *QOS) Factor() int64 {
	switch {
	case q == nil || q.UsageFactor == 0:
		return 1_000_000
	case q.UsageFactor < 0:
		return 0
	}
	return q.UsageFactor
}

// HasFlag tells whether a flag is set, without regard to case.
func (q *QOS) HasFlag(name string) bool {
	for _, f := range q.Flags {
		if equalFold(f, name) {
			return true
		}
	}
	return false
}

// Account is a bank account of the tree; the root is "root".
type Account struct {
	Name         string   `cbor:"1,keyasint"`
	Description  string   `cbor:"2,keyasint,omitempty"`
	Organization string   `cbor:"3,keyasint,omitempty"`
	Parent       string   `cbor:"4,keyasint,omitempty"`
	Coordinators []string `cbor:"5,keyasint,omitempty"`
}

// User is a person known to accounting.
type User struct {
	Name           string `cbor:"1,keyasint"`
	DefaultAccount string `cbor:"2,keyasint,omitempty"`
	DefaultWCKey   string `cbor:"3,keyasint,omitempty"`
	AdminLevel     string `cbor:"4,keyasint,omitempty"` // "", Operator, Administrator
}

// Association ties a user to an account, perhaps in one partition; with an
// empty User it stands for the account itself.
type Association struct {
	ID             uint32   `cbor:"1,keyasint"`
	Account        string   `cbor:"2,keyasint"`
	User           string   `cbor:"3,keyasint,omitempty"`
	Partition      string   `cbor:"4,keyasint,omitempty"`
	Parent         uint32   `cbor:"5,keyasint,omitempty"` // ID of the parent association; 0 = root
	Shares         int64    `cbor:"6,keyasint,omitempty"` // 0 = 1, NoShares = 0: see Share
	SharesParent   bool     `cbor:"7,keyasint,omitempty"` // Fairshare=parent
	Priority       uint32   `cbor:"8,keyasint,omitempty"`
	DefaultQOS     string   `cbor:"9,keyasint,omitempty"`
	QOS            []string `cbor:"10,keyasint,omitempty"` // allowed; empty = as the parent
	MaxWall        Span     `cbor:"11,keyasint,omitempty"`
	MaxTRESPerJob  Limits   `cbor:"12,keyasint,omitempty"`
	MaxTRESPerNode Limits   `cbor:"13,keyasint,omitempty"`
	MaxTRESMins    Limits   `cbor:"14,keyasint,omitempty"`
	MaxJobs        *int64   `cbor:"15,keyasint,omitempty"`
	MaxSubmitJobs  *int64   `cbor:"16,keyasint,omitempty"`
	GrpTRES        Limits   `cbor:"17,keyasint,omitempty"`
	GrpTRESMins    Limits   `cbor:"18,keyasint,omitempty"`
	GrpTRESRunMins Limits   `cbor:"19,keyasint,omitempty"`
	GrpWall        Span     `cbor:"20,keyasint,omitempty"`
	GrpJobs        *int64   `cbor:"21,keyasint,omitempty"`
	GrpSubmitJobs  *int64   `cbor:"22,keyasint,omitempty"`
	Comment        string   `cbor:"23,keyasint,omitempty"`
	GrpJobsAccrue  *int64   `cbor:"24,keyasint,omitempty"`
	MaxJobsAccrue  *int64   `cbor:"25,keyasint,omitempty"`
	MinPrio        *int64   `cbor:"26,keyasint,omitempty"`
	// Guaranteed is what the jobs of an account and of those below it can always
	// have: what others hold beyond their own is taken from them for it.
	Guaranteed Limits `cbor:"27,keyasint,omitempty"`
	// Budget binds beside GrpTRESMins: what the account has used, and what the
	// rest of its budget of money still pays for.
	Budget Limits `cbor:"28,keyasint,omitempty"`
	// OverQuota is the weight with which the account gets, and keeps when a floor
	// is claimed, what goes beyond what is guaranteed to it; nil: its Fairshare, 0:
	// it gets that after everybody else and gives it back before them.
	OverQuota *int64 `cbor:"29,keyasint,omitempty"`
}

// GroupMinutes are GrpTRESMins with the budget, where that is less.
func (a *Association) GroupMinutes() Limits {
	if len(a.Budget) == 0 {
		return a.GrpTRESMins
	}
	var limits Limits
	for _, limit := range a.GrpTRESMins {
		if n, ok := a.Budget.Get(limit.Name); ok && n < limit.N {
			limit.N = n
		}
		limits = append(limits, limit)
	}
	for _, limit := range a.Budget {
		if _, ok := a.GrpTRESMins.Get(limit.Name); !ok {
			limits = append(limits, limit)
		}
	}
	return limits
}

// NoShares stands for no share at all, since 0 stands for the 1 that an
// association has when nothing is said.
const NoShares = -1

// Share is how many shares an association has.
func (a *Association) Share() int64 {
	switch {
	case a.Shares == 0:
		return 1
	case a.Shares < 0:
		return 0
	}
	return a.Shares
}

// WCKey is a workload characterisation key: a label that a user may give to
// jobs.
type WCKey struct {
	ID   uint32 `cbor:"1,keyasint"`
	Name string `cbor:"2,keyasint"`
	User string `cbor:"3,keyasint"`
}

// Resource is something beyond the nodes that jobs hold, as a licence served
// elsewhere; the cluster may use Allowed of Count.
type Resource struct {
	Name         string `cbor:"1,keyasint"`
	Server       string `cbor:"2,keyasint"`
	ServerType   string `cbor:"3,keyasint,omitempty"`
	Type         string `cbor:"4,keyasint,omitempty"` // License
	Description  string `cbor:"5,keyasint,omitempty"`
	Manager      string `cbor:"6,keyasint,omitempty"`
	Count        int64  `cbor:"7,keyasint,omitempty"`
	Allowed      int64  `cbor:"8,keyasint,omitempty"` // per cent of Count, or with Absolute an amount
	Absolute     bool   `cbor:"9,keyasint,omitempty"`
	LastConsumed int64  `cbor:"10,keyasint,omitempty"` // used by others, as the server said last
}

// KnownCluster is another cluster, by the name under which -M finds it.
type KnownCluster struct {
	Name string `cbor:"1,keyasint,omitempty" since:"2"`
	// Socket is where its controller, or the login agent of it, takes commands on the hosts
	// where they are typed.
	Socket string `cbor:"2,keyasint,omitempty" since:"2"`
	Host   string `cbor:"3,keyasint,omitempty" since:"2"` // of its controller, to be shown
	Port   int64  `cbor:"4,keyasint,omitempty" since:"2"` // of its controller, to be shown
}

// Available is how many of a resource the cluster's jobs may hold.
func (r *Resource) Available() int64 {
	n := r.Allowed
	if !r.Absolute {
		n = r.Count * r.Allowed / 100
	}
	return max(min(n, r.Count-r.LastConsumed), 0)
}
