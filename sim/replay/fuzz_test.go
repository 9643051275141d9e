package replay

import (
	"strings"
	"testing"
)

// FuzzTraces reads the formats of public traces.
func FuzzTraces(f *testing.F) {
	f.Add("; MaxNodes: 4\n1 0 5 10 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n")
	f.Add("job_id,submit_time,duration\n1,2,3\n")
	f.Add("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\n")
	f.Fuzz(func(t *testing.T, text string) {
		if trace, err := ReadSWF(strings.NewReader(text)); err == nil && trace == nil {
			t.Fatalf("%q is no trace and no error", text)
		}
		_, _ = ReadITP(strings.NewReader(text), "c")                       // refused or not, it must come back
		_, _ = ReadGraham(strings.NewReader(text))                         // as above
		_, _ = ReadOpenb(strings.NewReader(text), strings.NewReader(text)) // as above
	})
}
