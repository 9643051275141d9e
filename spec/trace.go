package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// TraceID is the id of a job's OpenTelemetry trace. It follows from what never changes
// about a job, its name (12, 36_7) and when it was submitted, so whoever tells of the
// job names the same trace, whether it is sent, printed or pointed to by a metric.
func TraceID(job string, submitted Instant) string {
	sum := sha256.New()
	sum.Write([]byte("muster job " + job + "\x00"))
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(submitted)))
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
