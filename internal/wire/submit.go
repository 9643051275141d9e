package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// This file writes and reads the two messages of a submission without the
// protobuf runtime's reflection. Setting that up for JobSpec costs a process
// half a millisecond, a sixth of what a whole sbatch takes. The bytes are the
// same; a test compares them over random messages, so a field that is added to
// the contract and forgotten here fails it.

// ErrNotUTF8 is wrapped when a text cannot be sent.
var ErrNotUTF8 = errors.New("is not valid UTF-8")

// AppendSubmitRequest appends a message as proto.Marshal would.
func AppendSubmitRequest(b []byte, m *apiv1.SubmitRequest) ([]byte, error) {
	w := &writer{b: b}
	if s := m.GetSpec(); s != nil {
		w.message(1, func(w *writer) { w.spec(s) })
	}
	w.blob(2, m.GetScript())
	w.blob(3, m.GetEnvironment())
	w.flag(4, m.GetTestOnly())
	w.number(5, m.GetTag())
	for _, s := range m.GetRest() {
		w.message(30, func(w *writer) { w.spec(s) })
	}
	return w.b, w.err
}

// ParseSubmitReply reads a message as proto.Unmarshal would.
func ParseSubmitReply(b []byte, m *apiv1.SubmitReply) error {
	whole := b
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		switch {
		case typ == protowire.VarintType && (num == 1 || num == 2 || num == 5):
			if v, n = protowire.ConsumeVarint(b); n < 0 {
				return protowire.ParseError(n)
			}
		default: // what only few answers carry
			proto.Reset(m)
			return proto.Unmarshal(whole, m)
		}
		b = b[n:]
		switch num {
		case 1:
			m.Uid = v
		case 2:
			m.JobId = uint32(v)
		case 5:
			m.Tag = v
		}
	}
	return nil
}

// writer appends fields; those with their zero value are left out.
type writer struct {
	b   []byte
	err error
}

func (w *writer) number(n protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, n, protowire.VarintType), v)
	}
}

func (w *writer) flag(n protowire.Number, v bool) { w.number(n, protowire.EncodeBool(v)) }

func (w *writer) text(n protowire.Number, s string) {
	if s != "" {
		w.element(n, s)
	}
}

func (w *writer) element(n protowire.Number, s string) {
	if !utf8.ValidString(s) && w.err == nil {
		w.err = fmt.Errorf("%q %w", s, ErrNotUTF8)
	}
	w.b = protowire.AppendString(protowire.AppendTag(w.b, n, protowire.BytesType), s)
}

func (w *writer) list(n protowire.Number, l []string) {
	for _, s := range l {
		w.element(n, s)
	}
}

func (w *writer) data(n protowire.Number, d []byte) {
	if len(d) > 0 {
		w.b = protowire.AppendBytes(protowire.AppendTag(w.b, n, protowire.BytesType), d)
	}
}

// message appends what f writes as a field of its own.
func (w *writer) message(n protowire.Number, f func(*writer)) {
	in := &writer{}
	f(in)
	if w.err == nil {
		w.err = in.err
	}
	w.b = protowire.AppendBytes(protowire.AppendTag(w.b, n, protowire.BytesType), in.b)
}

func (w *writer) blob(n protowire.Number, m *apiv1.Blob) {
	if m != nil {
		w.message(n, func(w *writer) {
			w.data(1, m.GetData())
			w.data(2, m.GetSha256())
		})
	}
}

func (w *writer) count(m *apiv1.Count) {
	w.text(1, m.GetName())
	w.text(2, m.GetType())
	w.number(3, uint64(m.GetN()))
}

func (w *writer) tasks(m *apiv1.TaskRange) {
	w.number(1, uint64(m.GetFirst()))
	w.number(2, uint64(m.GetLast()))
	w.number(3, uint64(m.GetStep()))
}

// spec writes every field in the order of the numbers.
//
//muster:table one line a field of JobSpec
func (w *writer) spec(m *apiv1.JobSpec) {
	w.text(1, m.GetName())
	w.text(2, m.GetAccount())
	w.text(3, m.GetQos())
	w.list(4, m.GetPartitions())
	w.text(5, m.GetWckey())
	w.text(6, m.GetComment())
	w.number(10, uint64(m.GetMinNodes()))
	w.number(11, uint64(m.GetMaxNodes()))
	w.number(12, uint64(m.GetTasks()))
	w.number(13, uint64(m.GetTasksPerNode()))
	w.number(14, uint64(m.GetTasksPerSocket()))
	w.number(15, uint64(m.GetTasksPerCore()))
	w.number(16, uint64(m.GetTasksPerGpu()))
	w.number(17, uint64(m.GetCpusPerTask()))
	w.number(18, uint64(m.GetCpusPerGpu()))
	w.number(19, uint64(m.GetMinCpusPerNode()))
	w.number(20, uint64(m.GetMemPerNode()))
	w.number(21, uint64(m.GetMemPerCpu()))
	w.number(22, uint64(m.GetMemPerGpu()))
	w.flag(23, m.GetAllMem())
	for _, c := range m.GetPerNode() {
		w.message(24, func(w *writer) { w.count(c) })
	}
	for _, c := range m.GetPerJob() {
		w.message(25, func(w *writer) { w.count(c) })
	}
	for _, c := range m.GetPerTask() {
		w.message(26, func(w *writer) { w.count(c) })
	}
	for _, c := range m.GetPerSocket() {
		w.message(27, func(w *writer) { w.count(c) })
	}
	w.number(28, uint64(m.GetTmpDisk()))
	w.number(29, uint64(m.GetThreadsPerCore()))
	w.number(30, uint64(m.GetCoreSpec()))
	for _, c := range m.GetLicenses() {
		w.message(31, func(w *writer) { w.count(c) })
	}
	w.number(40, uint64(m.GetTimeLimit()))
	w.number(41, uint64(m.GetTimeMin()))
	w.number(42, uint64(m.GetBegin()))
	w.number(43, uint64(m.GetDeadline()))
	w.number(44, uint64(m.GetSignal()))
	w.number(45, uint64(m.GetSignalBefore()))
	w.flag(46, m.GetSignalBatch())
	w.flag(47, m.GetSignalResv())
	w.text(50, m.GetNodes())
	w.text(51, m.GetExclude())
	w.text(52, m.GetConstraint())
	w.text(53, m.GetPrefer())
	w.number(54, uint64(m.GetSharing()))
	w.flag(55, m.GetContiguous())
	w.flag(56, m.GetSpread())
	w.text(57, m.GetReservation())
	w.number(58, uint64(m.GetSwitches()))
	w.number(59, uint64(m.GetSwitchWait()))
	w.text(60, m.GetDistribution())
	w.flag(70, m.GetHold())
	w.number(71, uint64(m.GetNice()))
	w.number(72, uint64(m.GetPriority()))
	w.number(73, uint64(m.GetRequeue()))
	for _, r := range m.GetArray() {
		w.message(74, func(w *writer) { w.tasks(r) })
	}
	w.number(75, uint64(m.GetArrayThrottle()))
	w.text(76, m.GetDependency())
	w.number(77, uint64(m.GetKillOnInvalidDep()))
	w.list(78, m.GetMailTypes())
	w.text(79, m.GetMailUser())
	w.flag(80, m.GetImmediate())
	w.flag(81, m.GetReboot())
	w.text(90, m.GetWorkDir())
	w.text(91, m.GetStdin())
	w.text(92, m.GetStdout())
	w.text(93, m.GetStderr())
	w.number(94, uint64(m.GetAppend()))
	w.number(95, uint64(m.GetUmask()))
	for _, c := range m.GetRlimits() {
		w.message(96, func(w *writer) { w.count(c) })
	}
	w.list(100, m.GetArgs())
	w.text(101, m.GetCommand())
	w.text(102, m.GetSubmitLine())
	w.text(103, m.GetSubmitHost())
	w.flag(104, m.GetShell())
	w.number(130, uint64(m.GetSegment()))
	w.flag(131, m.GetSpreadSegments())
	w.text(132, m.GetMcsLabel())
	w.number(133, uint64(m.GetSocketsPerNode()))
	w.number(134, uint64(m.GetCoresPerSocket()))
	w.flag(135, m.GetAnyLicense())
	w.flag(136, m.GetOvercommit())
	w.flag(137, m.GetUseMinNodes())
	w.number(138, uint64(m.GetThreadSpec()))
	w.text(140, m.GetGpuBind())
	w.text(141, m.GetGpuFreq())
	w.flag(142, m.GetAttended())
	w.flag(150, m.GetNoKill())
	w.text(160, m.GetExtra())
	w.text(161, m.GetAdminComment())
	w.text(162, m.GetSystemComment())
	w.number(163, uint64(m.GetSampleEvery()))
}
