package tool

import (
	"fmt"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/format"
)

// ParseMoment reads a moment of the past as people type it: a time as sacct reads it, which
// means the beginning of that second, or #N, the state right after event N of the ledger.
func (e *Env) ParseMoment(text string) (*apiv1.Moment, error) {
	if number, ok := strings.CutPrefix(text, "#"); ok {
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil || seq == 0 {
			return nil, fmt.Errorf("%s: expected #N, the number of an event", text)
		}
		return &apiv1.Moment{Seq: seq}, nil
	}
	seconds, err := format.ParseTime(
		text, format.Moment{Now: e.Now().Unix(), Loc: e.Loc, Past: true},
	)
	if err != nil {
		return nil, fmt.Errorf("%s", BadTimeText(text))
	}
	return &apiv1.Moment{At: max(seconds*Second, 1)}, nil
}
