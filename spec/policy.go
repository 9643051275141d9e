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
	UsageFactor      int64    `cbor:"25,keyasint,omitempty"` // millionths; 0 = 1
	MinPrio          *int64   `cbor:"26,keyasint,omitempty"`
	PreemptExempt    Span     `cbor:"40,keyasint,omitempty"` // 0 = the cluster's
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
	Shares         int64    `cbor:"6,keyasint,omitempty"` // 0 = 1
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
}
