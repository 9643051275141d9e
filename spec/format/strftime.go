package format

import (
	"strconv"
	"time"
)

// TimeAs prints seconds since 1970 as SLURM_TIME_FORMAT asks: "" and
// "standard" as [Time]; "relative" shortens by how far the moment is from m.Now;
// any text with % is a strftime format (the conversions that do not depend on
// a locale). ok is false for a format that is none of these.
func TimeAs(layout string, seconds int64, moment Moment) (text string, ok bool) {
	if layout == "" || layout == "standard" || seconds == 0 {
		return Time(seconds, moment.Loc), true
	}
	t := time.Unix(seconds, 0).In(moment.Loc)
	if layout == "relative" {
		return relative(t, time.Unix(moment.Now, 0).In(moment.Loc)), true
	}
	return strftime(layout, t)
}

func relative(t, now time.Time) string {
	day := func(t time.Time) int {
		return int(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400)
	}
	switch d := day(t) - day(now); {
	case d == 0:
		return t.Format("15:04:05")
	case t.Year() != now.Year():
		return t.Format("2 Jan 2006")
	case d == 1:
		return "Tomorr " + t.Format("15:04")
	case d == -1:
		return "Ystday " + t.Format("15:04")
	case d > 1 && d < 7:
		return t.Format("Mon 15:04")
	}
	return t.Format("2 Jan 15:04")
}

// conversions of strftime that are a layout of package time.
var conversions = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
	'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'H': "15", 'I': "03", 'j': "002", 'm': "01",
	'M': "04", 'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'x': "01/02/06",
	'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

func strftime(layout string, t time.Time) (string, bool) {
	var buffer []byte
	any := false
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			buffer = append(buffer, layout[i])
			continue
		}
		i++
		if i == len(layout) {
			return "", false
		}
		any = true
		switch c := layout[i]; c {
		case '%':
			buffer = append(buffer, '%')
		case 'n':
			buffer = append(buffer, '\n')
		case 't':
			buffer = append(buffer, '\t')
		case 's':
			buffer = strconv.AppendInt(buffer, t.Unix(), 10)
		case 'u':
			buffer = strconv.AppendInt(buffer, int64((t.Weekday()+6)%7+1), 10)
		case 'w':
			buffer = strconv.AppendInt(buffer, int64(t.Weekday()), 10)
		default:
			l, ok := conversions[c]
			if !ok {
				return "", false
			}
			buffer = t.AppendFormat(buffer, l)
		}
	}
	return string(buffer), any
}
