package history

import (
	"testing"
	"time"
)

// at makes a call in a short form.
func at(client int, verb Verb, began, ended int, answer Answer) Call {
	return Call{Client: client, Verb: verb, Job: 7, Began: time.Duration(began), Ended: time.Duration(ended), Answer: answer}
}

func saw(job Job) Answer { return Answer{Seen: job} }

// TestCheck: what one controller could have answered is accepted, and what it could not is found.
func TestCheck(t *testing.T) {
	var done Answer
	lost := Answer{Unknown: true}
	refused := Answer{Refused: true}
	submitted := at(0, Submit, 0, 10, done)
	for _, c := range []struct {
		name  string
		calls []Call
		wrong bool
	}{
		{"a query after a hold", []Call{submitted, at(1, Hold, 20, 30, done), at(2, Query, 40, 50, saw(Held))}, false},
		{"a query beside a hold, before", []Call{submitted, at(1, Hold, 20, 60, done), at(2, Query, 40, 50, saw(Waiting))}, false},
		{"a query beside a hold, after", []Call{submitted, at(1, Hold, 20, 60, done), at(2, Query, 40, 50, saw(Held))}, false},
		{"a stale query", []Call{submitted, at(1, Hold, 20, 30, done), at(2, Query, 40, 50, saw(Waiting))}, true},
		{"a lost submission", []Call{submitted, at(2, Query, 40, 50, saw(Absent))}, true},
		{"a cancel without effect", []Call{submitted, at(1, Cancel, 20, 30, done), at(2, Query, 40, 50, saw(Held))}, true},
		{"a cancel that is undone", []Call{submitted, at(1, Cancel, 20, 30, done), at(1, Hold, 40, 50, done)}, true},
		{"a job that goes back", []Call{submitted, at(1, Hold, 15, 90, done), at(2, Query, 20, 30, saw(Held)), at(3, Query, 40, 50, saw(Waiting))}, true},
		{"a refusal of an ended job", []Call{submitted, at(1, Cancel, 20, 30, done), at(1, Hold, 40, 50, refused)}, false},
		{"a refusal of a live job", []Call{submitted, at(1, Hold, 40, 50, refused)}, true},
		{"a lost cancel that took effect late", []Call{submitted, at(1, Cancel, 20, 30, lost), at(2, Query, 40, 50, saw(Waiting)), at(2, Query, 60, 70, saw(Ended))}, false},
		{"a lost cancel that never took effect", []Call{submitted, at(1, Cancel, 20, 30, lost), at(2, Query, 40, 50, saw(Waiting))}, false},
		{"a lost cancel that was undone", []Call{submitted, at(1, Cancel, 20, 30, lost), at(2, Query, 40, 50, saw(Ended)), at(2, Query, 60, 70, saw(Waiting))}, true},
	} {
		if wrong := Check(c.calls); (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: found %v", c.name, wrong)
		}
	}
}

// TestRecorderLeavesOutLostQueries: a query without an answer says nothing.
func TestRecorderLeavesOutLostQueries(t *testing.T) {
	r := NewRecorder()
	r.Add(Call{Verb: Query, Answer: Answer{Unknown: true}})
	r.Add(Call{Verb: Cancel, Answer: Answer{Unknown: true}})
	if calls := r.Calls(); len(calls) != 1 || calls[0].Verb != Cancel {
		t.Errorf("it keeps %v", calls)
	}
}
