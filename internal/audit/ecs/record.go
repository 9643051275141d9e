// Package ecs makes the records of the audit trail, in the names of the Elastic
// Common Schema. The command line uses it too, so it links nothing of networks.
package ecs

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec/hostlist"
)

// ecsVersion is the release of the Elastic Common Schema whose names are used.
const ecsVersion = "8.17.0"

// MaxLine bounds a record, in bytes: rsyslog takes 8 KiB by default, the header
// of a message included.
const MaxLine = 7 << 10

// maxValue bounds a value of a record that would be too long, in bytes.
const maxValue = 200

// Record is one line of the trail. docs/operations/audit.md explains the fields.
type Record struct {
	Time         string        `json:"@timestamp"`
	Message      string        `json:"message"`
	ECS          schema        `json:"ecs"`
	Event        eventFields   `json:"event"`
	User         *named        `json:"user,omitempty"`
	Source       *source       `json:"source,omitempty"`
	Host         *named        `json:"host,omitempty"`
	Observer     *named        `json:"observer,omitempty"`
	Orchestrator *orchestrator `json:"orchestrator,omitempty"`
	Muster       muster        `json:"muster"`
}

type schema struct {
	Version string `json:"version"`
}

type eventFields struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Category []string `json:"category"`
	Type     []string `json:"type"`
	Action   string   `json:"action"`
	Outcome  string   `json:"outcome"`
	Reason   string   `json:"reason,omitempty"`
	Code     string   `json:"code,omitempty"`
	Sequence uint64   `json:"sequence,omitempty"`
	Module   string   `json:"module"`
	Dataset  string   `json:"dataset"`
	Provider string   `json:"provider"`
}

type named struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

type source struct {
	Address string `json:"address,omitempty"` // of the host or of the network, whatever is known
	IP      string `json:"ip,omitempty"`
	Port    int    `json:"port,omitempty"`
}

type orchestrator struct {
	Type     string    `json:"type"`
	Cluster  named     `json:"cluster"`
	Resource *resource `json:"resource,omitempty"`
}

type resource struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// muster are the facts that ECS has no name for.
type muster struct {
	Actor     string         `json:"actor,omitempty"` // user, node or system
	Command   string         `json:"command,omitempty"`
	Cause     uint64         `json:"cause,omitempty"`
	Job       string         `json:"job,omitempty"`
	JobUser   string         `json:"job_user,omitempty"`
	Account   string         `json:"account,omitempty"`
	Nodes     string         `json:"nodes,omitempty"`
	Fields    map[string]any `json:"fields,omitempty"`
	LeftOut   uint64         `json:"left_out,omitempty"`
	Truncated bool           `json:"truncated,omitempty"`
}

// Which tells what belongs to the trail.
type Which uint8

// What the trail consists of.
const (
	// Changes are what people asked for, and what changes who may do what: machines,
	// certificates, tokens, the configuration, and every start and end of a job.
	Changes Which = iota
	// All are all events of the ledger.
	All
)

// Wants tells whether an event belongs to the trail.
func (w Which) Wants(entry *apiv1.EventInfo) bool {
	if w == All {
		return true
	}
	kind, ok := kindByName[entry.GetKind()]
	switch {
	case !ok || entry.GetActorKind() == wire.ActorKindName(event.ActorUser):
		return true
	case kind == event.KindJobStarted,
		kind == event.KindJobEnded,
		kind == event.KindJobRequeued,
		kind == event.KindJobEndRequested:
		return true
	case kind == event.KindUsageAged, kind == event.KindSharesNoted, kind == event.KindPartitionPut:
		return kind == event.KindPartitionPut
	case kind == event.KindNodeRegistered,
		kind == event.KindNodeStateSet,
		kind == event.KindNodeAdded,
		kind == event.KindNodeDeleted,
		kind == event.KindNodeChanged,
		kind == event.KindRunFenced,
		kind == event.KindFenceTried:
		return true
	}
	switch wire.TopicOf(kind) {
	case wire.TopicSecret,
		wire.TopicCluster,
		wire.TopicPolicy,
		wire.TopicReservation,
		wire.TopicPartition:
		return true
	case wire.TopicJob, wire.TopicNode, wire.TopicUse, wire.NumTopics:
	}
	return false
}

var kindByName = func() map[string]event.Kind {
	out := map[string]event.Kind{}
	for _, k := range event.Kinds() {
		out[k.String()] = k
	}
	return out
}()

// Origin is what every record of a process says of it.
type Origin struct {
	Cluster    string
	Controller string // host that wrote the record; empty = not said
}

// FromEvent makes the record of a change.
func (o Origin) FromEvent(entry *apiv1.EventInfo) *Record {
	at := time.Unix(0, entry.GetAt())
	record := o.newRecord(at)
	kind := kindByName[entry.GetKind()]
	topic := wire.TopicOf(kind)
	record.Event.ID = fmt.Sprintf("%d-%x", entry.GetSeq(), uint64(entry.GetAt()))
	if entry.GetJob() != "" { // an event may be about several jobs
		record.Event.ID += "-" + entry.GetJob()
	}
	record.Event.Category, record.Event.Type = classify(kind, topic)
	record.Event.Action = actionOf(entry.GetKind())
	record.Event.Code = entry.GetKind()
	record.Event.Outcome = "success"
	record.Event.Sequence = entry.GetSeq()
	switch entry.GetActorKind() {
	case wire.ActorKindName(event.ActorUser):
		record.User = &named{Name: entry.GetActor()}
		if entry.GetHost() != "" {
			record.Source = &source{Address: entry.GetHost()}
		}
	case wire.ActorKindName(event.ActorNode):
		record.Host = &named{Name: entry.GetActor()}
	}
	record.Muster = muster{
		Actor:   entry.GetActorKind(),
		Command: entry.GetCommand(),
		Cause:   entry.GetCauseSeq(),
		Job:     entry.GetJob(),
		JobUser: entry.GetUser(),
		Account: entry.GetAccount(),
	}
	if nodes := entry.GetNodes(); len(nodes) > 0 {
		record.Muster.Nodes = hostlist.Fold(nodes)
	}
	for _, field := range entry.GetFields() {
		if record.Muster.Fields == nil {
			record.Muster.Fields = map[string]any{}
		}
		record.Muster.Fields[field.GetName()] = fieldValue(field)
	}
	if reason, ok := record.Muster.Fields["reason"].(string); ok {
		record.Event.Reason = reason
	}
	record.Orchestrator.Resource = resourceOf(topic, entry, record)
	record.Message = sentence(entry, record)
	return record
}

func (o Origin) newRecord(at time.Time) *Record {
	record := &Record{
		Time: at.UTC().Format("2006-01-02T15:04:05.000000000Z"),
		ECS:  schema{ecsVersion},
		Event: eventFields{
			Kind:     "event",
			Module:   "muster",
			Dataset:  "muster.audit",
			Provider: "musterd",
		},
		Orchestrator: &orchestrator{Type: "muster", Cluster: named{Name: o.Cluster}},
	}
	if o.Controller != "" {
		record.Observer = &named{Name: o.Controller}
	}
	return record
}

// fieldValue is a fact as JSON has it: times in RFC 3339, spans in seconds.
func fieldValue(field *apiv1.EventField) any {
	switch v := field.GetValue().(type) {
	case *apiv1.EventField_Text:
		return v.Text
	case *apiv1.EventField_Number:
		return v.Number
	case *apiv1.EventField_Time:
		return time.Unix(0, v.Time).UTC().Format(time.RFC3339Nano)
	case *apiv1.EventField_Span:
		if v.Span < 0 {
			return -1
		}
		return float64(v.Span) / 1e9
	case *apiv1.EventField_Yes:
		return v.Yes
	}
	return nil
}

// classify gives ECS' categories and types of a kind.
func classify(kind event.Kind, topic wire.EventTopic) (category, types []string) {
	change := []string{"change"}
	switch kind {
	case event.KindJobStarted, event.KindStepStarted, event.KindJobResumed:
		return []string{"process"}, []string{"start"}
	case event.KindJobEnded, event.KindStepEnded, event.KindStepNodeDone, event.KindJobNodeDone:
		return []string{"process"}, []string{"end"}
	case event.KindJobSubmitted:
		return []string{"process"}, []string{"info"}
	case event.KindTokenIssued, event.KindCertificateIssued, event.KindUserTokenIssued:
		return []string{"iam"}, []string{"creation"}
	case event.KindTokenSpent, event.KindCertificateRevoked, event.KindCertificatesDropped,
		event.KindUserTokensEnded:
		return []string{"iam"}, []string{"deletion"}
	case event.KindAccountRemoved,
		event.KindUserRemoved,
		event.KindAssociationRemoved,
		event.KindQOSRemoved,
		event.KindWCKeyRemoved:
		return []string{"iam"}, []string{"deletion"}
	}
	switch topic {
	case wire.TopicSecret, wire.TopicPolicy:
		return []string{"iam"}, change
	case wire.TopicJob:
		return []string{"process"}, change
	case wire.TopicNode:
		return []string{"host"}, change
	case wire.TopicCluster,
		wire.TopicPartition,
		wire.TopicReservation,
		wire.TopicUse,
		wire.NumTopics:
	}
	return []string{"configuration"}, change
}

// actionOf is a kind in the spelling of event.action: JobSubmitted is
// job-submitted, QOSPut is qos-put.
func actionOf(kind string) string {
	upper := func(i int) bool { return i >= 0 && i < len(kind) && kind[i] >= 'A' && kind[i] <= 'Z' }
	var text strings.Builder
	for i := range len(kind) {
		word := upper(i) && (!upper(i-1) || upper(i-1) && i+1 < len(kind) && !upper(i+1))
		if word && i > 0 {
			text.WriteByte('-')
		}
		text.WriteByte(kind[i])
	}
	return strings.ToLower(text.String())
}

// resourceOf is what a change is about.
func resourceOf(topic wire.EventTopic, entry *apiv1.EventInfo, record *Record) *resource {
	text := func(name string) string { s, _ := record.Muster.Fields[name].(string); return s }
	switch {
	case entry.GetJob() != "":
		return &resource{Type: "job", ID: entry.GetJob(), Name: text("name")}
	case topic == wire.TopicNode && record.Muster.Nodes != "":
		return &resource{Type: "node", Name: record.Muster.Nodes}
	}
	for _, name := range [...]string{"reservation", "partition", "account", "user", "qos", "wckey", "resource", "node"} {
		if text(name) != "" {
			return &resource{Type: name, Name: text(name)}
		}
	}
	return nil
}

// sentence tells a change to people.
func sentence(entry *apiv1.EventInfo, record *Record) string {
	var text strings.Builder
	text.WriteString(entry.GetKind())
	if about := record.Orchestrator.Resource; about != nil {
		name := about.ID
		if name == "" {
			name = about.Name
		}
		text.WriteString(" " + about.Type + " " + name)
	}
	switch {
	case entry.GetActor() != "":
		text.WriteString(" by " + entry.GetActorKind() + " " + entry.GetActor())
	case entry.GetActorKind() != "":
		text.WriteString(" by the " + entry.GetActorKind())
	}
	if entry.GetHost() != "" {
		text.WriteString(" on " + entry.GetHost())
	}
	if entry.GetCommand() != "" {
		text.WriteString(" (" + entry.GetCommand() + ")")
	}
	return text.String()
}

// Line is the record as one line of JSON, without its end. A record that would
// be longer than every receiver takes has its long values cut, and says so.
func (r *Record) Line() (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("audit record %s: %w", r.Event.ID, err)
	}
	if len(data) <= MaxLine {
		return string(data), nil
	}
	short := *r
	short.Muster.Truncated = true
	short.Message = cut(r.Message)
	short.Event.Reason = cut(r.Event.Reason)
	short.Muster.Nodes = cut(r.Muster.Nodes)
	short.Muster.Fields = map[string]any{}
	for name, value := range r.Muster.Fields {
		if text, ok := value.(string); ok {
			value = cut(text)
		}
		short.Muster.Fields[name] = value
	}
	if about := r.Orchestrator.Resource; about != nil {
		cutAbout := resource{about.Type, cut(about.ID), cut(about.Name)}
		orchestra := *r.Orchestrator
		orchestra.Resource = &cutAbout
		short.Orchestrator = &orchestra
	}
	data, err = json.Marshal(&short)
	if err == nil && len(data) > MaxLine {
		short.Muster.Fields = nil // hundreds of facts: the ledger has them
		data, err = json.Marshal(&short)
	}
	return string(data), err
}

// cut shortens a text at a whole character.
func cut(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return strings.ToValidUTF8(text[:maxValue], "") + "… (" + strconv.Itoa(len(text)) + " bytes)"
}
