package event

import "github.com/musterhpc/muster/spec"

// Kind numbers a type of event. The numbers are stored: never change one.
type Kind uint16

// The kinds of this release.
const (
	KindClusterCreated       Kind = 1
	KindClusterVersionRaised Kind = 2
	KindConfigAdopted        Kind = 3
	KindTokenIssued          Kind = 4
	KindCertificateIssued    Kind = 5
	KindCertificateRevoked   Kind = 6
	KindTokenSpent           Kind = 7
	KindCertificatesDropped  Kind = 8
	KindEpochBegan           Kind = 9
	KindHistoryLost          Kind = 10

	KindQOSPut             Kind = 20
	KindQOSRemoved         Kind = 21
	KindAccountPut         Kind = 22
	KindAccountRemoved     Kind = 23
	KindUserPut            Kind = 24
	KindUserRemoved        Kind = 25
	KindAssociationPut     Kind = 26
	KindAssociationRemoved Kind = 27
	KindWCKeyPut           Kind = 28
	KindWCKeyRemoved       Kind = 29
	KindResourcePut        Kind = 30
	KindResourceRemoved    Kind = 31
	KindUsageAged          Kind = 32
	KindUsageCleared       Kind = 33
	KindSharesNoted        Kind = 34
	KindReservationPut     Kind = 36
	KindReservationRemoved Kind = 37
	KindCrontabPut         Kind = 38
	KindTriggerPut         Kind = 39
	KindTriggerRemoved     Kind = 19
	KindClusterPut         Kind = 17
	KindClusterRemoved     Kind = 18

	KindJobSubmitted     Kind = 40
	KindJobEligible      Kind = 41
	KindReasonsChanged   Kind = 42
	KindJobHeld          Kind = 43
	KindJobReleased      Kind = 44
	KindJobUpdated       Kind = 45
	KindArrayTaskSplit   Kind = 46
	KindJobStarted       Kind = 47
	KindJobEndRequested  Kind = 48
	KindJobSignalled     Kind = 49
	KindJobEnded         Kind = 50
	KindJobNodeDone      Kind = 51
	KindJobRequeued      Kind = 52
	KindJobPurged        Kind = 53
	KindStepStarted      Kind = 54
	KindStepEnded        Kind = 55
	KindStepNodeDone     Kind = 61
	KindStepEndRequested Kind = 62
	KindStepSignalled    Kind = 63
	KindStepUpdated      Kind = 65
	KindJobShrunk        Kind = 66
	KindJobsAccruing     Kind = 56
	KindJobPrepared      Kind = 60
	KindJobEpilogOver    Kind = 64
	KindImagePinned      Kind = 67
	KindJobNoted         Kind = 68
	KindJobPodsOver      Kind = 69
	KindJobSuspended     Kind = 57
	KindJobResumed       Kind = 58
	KindJobReady         Kind = 59

	KindNodeRegistered  Kind = 70
	KindNodeStateSet    Kind = 71
	KindNodeLost        Kind = 72
	KindNodeReturned    Kind = 73
	KindGPUFaulted      Kind = 76
	KindNodePowered     Kind = 77
	KindNodeReboot      Kind = 78
	KindRunFenced       Kind = 79
	KindFenceTried      Kind = 110
	KindUserTokenIssued Kind = 205
	KindUserTokensEnded Kind = 206
	KindNodeAdded       Kind = 90
	KindNodeDeleted     Kind = 91
	KindPartitionPut    Kind = 92
	KindNodeChanged     Kind = 93
	KindPartitionAdded  Kind = 94
	KindPartitionGone   Kind = 95

	KindForeignHoldTaken    Kind = 100
	KindForeignHoldReleased Kind = 101
)

// Event is one fact. The types of this package are all there are: the
// interface is sealed.
type Event interface {
	Kind() Kind
	sealed()
}

// ActorKind says what kind of party acted.
type ActorKind uint8

// Who acts in a cluster.
const (
	ActorSystem ActorKind = iota // the controller itself: scheduler, timers
	ActorUser
	ActorNode
)

// Actor is who caused an event, as the channel proved it.
type Actor struct {
	Kind ActorKind `cbor:"1,keyasint,omitempty"`
	UID  uint32    `cbor:"2,keyasint,omitempty"`
	Name string    `cbor:"3,keyasint,omitempty"` // user name or node name
	Host string    `cbor:"4,keyasint,omitempty"` // where the user acted, if not the controller's host
}

// Cause is why an event happened: the command that asked for it and, where
// one event follows from another, the sequence number of that one.
type Cause struct {
	Command string `cbor:"1,keyasint,omitempty"` // submit, cancel, schedule, report, tick, configure, …
	Seq     uint64 `cbor:"2,keyasint,omitempty"`
}

// Envelope is an event with its place in history. Seq starts at 1 and has no
// gaps; At never goes backwards.
type Envelope struct {
	Seq   uint64
	At    spec.Instant
	Actor Actor
	Cause Cause
	Event Event
}
