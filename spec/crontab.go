package spec

// Crontab is a user's table of jobs that come back by the clock.
type Crontab struct {
	UID     uint32     `cbor:"1,keyasint"`
	User    string     `cbor:"2,keyasint"`
	Text    string     `cbor:"3,keyasint,omitempty"` // as the user wrote it; empty = there is no table any more
	Entries []CronLine `cbor:"4,keyasint,omitempty"`
}

// CronLine is a line of the table and the job that was made of it. An entry whose job was
// cancelled is not in the table any more, and its lines are comments.
type CronLine struct {
	Job   JobUID `cbor:"1,keyasint"`
	First uint32 `cbor:"2,keyasint"` // its lines in Text, counted from 1, its options included
	Last  uint32 `cbor:"3,keyasint"`
}

// Find gives the place of a job in the table, or -1. There may be no table.
func (c *Crontab) Find(job JobUID) int {
	if c == nil {
		return -1
	}
	for i := range c.Entries {
		if c.Entries[i].Job == job {
			return i
		}
	}
	return -1
}
