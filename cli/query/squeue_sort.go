package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

func sortKeys(text string) ([]render.SortKey, error) {
	var keys []render.SortKey
	for _, part := range tool.SplitList(text) {
		key := render.SortKey{}
		if part[0] == '-' || part[0] == '+' {
			key.Falling, part = part[0] == '-', part[1:]
		}
		part = strings.TrimPrefix(part, "#")
		if len(part) != 1 ||
			!slices.ContainsFunc(jobFields(), func(f jobField) bool { return f.letter == part }) {
			return nil, fmt.Errorf(
				"Invalid sort specification: %s",
				text,
			) //nolint:staticcheck // Slurm's wording
		}
		key.Letter = part[0]
		keys = append(keys, key)
	}
	return keys, nil
}

// sortable is a row with the texts of those keys that compare as text.
type sortable struct {
	render.JobRow
	texts []string
}

// sortRows orders rows by the keys, the first one strongest.
func sortRows(rows []render.JobRow, keys []render.SortKey, view *render.JobView) {
	if len(rows) < 2 {
		return
	}
	byText := make([]func(*render.JobView, render.JobRow) string, len(keys))
	for i, key := range keys {
		if !strings.ContainsRune(numericLetters, rune(key.Letter)) {
			byText[i] = fieldOf(key.Letter)
		}
	}
	list := make([]sortable, len(rows))
	for i, row := range rows {
		list[i] = sortable{row, make([]string, len(keys))}
		for k, text := range byText {
			if text != nil {
				list[i].texts[k] = text(view, row)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b sortable) int {
		for i, key := range keys {
			d := strings.Compare(a.texts[i], b.texts[i])
			if byText[i] == nil {
				d = compareRows(a.JobRow, b.JobRow, key.Letter, view.Now)
			}
			if key.Falling {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
	for i := range list {
		rows[i] = list[i].JobRow
	}
}

func fieldOf(letter byte) func(*render.JobView, render.JobRow) string {
	for _, field := range jobFields() {
		if field.letter == string(letter) {
			return field.text
		}
	}
	return func(*render.JobView, render.JobRow) string { return "" }
}

// numericLetters are the letters that compareRows knows.
const numericLetters = "iFAKCDcdeGUlLmMpQSVy"

// compareRows compares by one of numericLetters.
//
//muster:table one case for each letter
func compareRows(a, b render.JobRow, letter byte, now int64) int {
	switch letter {
	case 'i', 'F':
		return cmp.Or(cmp.Compare(cmp.Or(a.GetArrayJobId(), a.GetJobId()), cmp.Or(b.GetArrayJobId(), b.GetJobId())), cmp.Compare(taskOrder(a), taskOrder(b)),
			stepOrder(a, b))
	case 'A':
		return cmp.Compare(a.GetJobId(), b.GetJobId())
	case 'K':
		return cmp.Compare(taskOrder(a), taskOrder(b))
	case 'C':
		return cmp.Compare(a.GetNumCpus(), b.GetNumCpus())
	case 'D':
		return cmp.Compare(a.GetNumNodes(), b.GetNumNodes())
	case 'c':
		return cmp.Compare(a.GetSpec().GetMinCpusPerNode(), b.GetSpec().GetMinCpusPerNode())
	case 'd':
		return cmp.Compare(a.GetSpec().GetTmpDisk(), b.GetSpec().GetTmpDisk())
	case 'e':
		return cmp.Compare(render.End(a.JobInfo), render.End(b.JobInfo))
	case 'G':
		return cmp.Compare(a.GetGroupId(), b.GetGroupId())
	case 'U':
		return cmp.Compare(a.GetUserId(), b.GetUserId())
	case 'l':
		return cmp.Compare(uint64(a.GetTimeLimit()), uint64(b.GetTimeLimit())) // -1, no limit, is the largest
	case 'L':
		return cmp.Compare(uint64(render.Left(a.JobInfo, now)), uint64(render.Left(b.JobInfo, now)))
	case 'm':
		return cmp.Compare(a.GetReqTres().GetMem(), b.GetReqTres().GetMem())
	case 'M':
		return cmp.Compare(render.Elapsed(a.JobInfo, now), render.Elapsed(b.JobInfo, now))
	case 'p', 'Q':
		d := cmp.Compare(a.GetPriority(), b.GetPriority())
		if d == 0 && a.Pending() && b.Pending() { // as Slurm lists jobs of one priority
			return cmp.Compare(wholeNumber(a), wholeNumber(b))
		}
		return d
	case 'S':
		return cmp.Compare(render.Start(a.JobInfo), render.Start(b.JobInfo))
	case 'V':
		return cmp.Compare(a.GetSubmit(), b.GetSubmit())
	case 'y':
		return cmp.Compare(a.GetSpec().GetNice(), b.GetSpec().GetNice())
	}
	return 0
}

// wholeNumber is the number of the array or heterogeneous job that a row is of: rows
// of one stay in the order in which they are listed, whatever way others go.
func wholeNumber(row render.JobRow) uint32 {
	return cmp.Or(row.GetArrayJobId(), row.GetHetJobId(), row.GetJobId())
}

// taskOrder is the place of a row among the tasks of its array.
func taskOrder(row render.JobRow) int64 {
	if row.IsArray() {
		return row.GetArrayTasks()[0].GetFirst()
	}
	return row.TaskID()
}

// stepOrder is the order of a job's steps: the numbered ones, then those that have a name, as
// Slurm numbers these above all others.
func stepOrder(a, b render.JobRow) int {
	return cmp.Compare(uint32(a.Step.GetStepId()), uint32(b.Step.GetStepId()))
}
