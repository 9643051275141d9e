package schema

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// level is an object or a list that is being read.
type level struct {
	path  string
	names map[string]bool // nil in a list
	name  string          // of the value that follows; empty: a name follows
	count int             // elements of a list so far
}

// DoubledFields are the paths of fields that an object of a JSON text has more than once. The decoder
// keeps the last one and says nothing.
func DoubledFields(text []byte) []string {
	var doubled []string
	var levels []*level
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return doubled // the end, or what whoever decodes the text complains about
		}
		var top *level
		if len(levels) > 0 {
			top = levels[len(levels)-1]
		}
		delim, opens := token.(json.Delim)
		if opens && (delim == '}' || delim == ']') {
			levels = levels[:len(levels)-1]
			continue
		}
		if name, is := token.(string); is && top != nil && top.names != nil && top.name == "" {
			if top.names[name] {
				doubled = append(doubled, top.path+"/"+name)
			}
			top.names[name] = true
			top.name = "/" + name
			continue
		}
		path := "#"
		if top != nil {
			path = top.take()
		}
		switch {
		case opens && delim == '{':
			levels = append(levels, &level{path: path, names: map[string]bool{}})
		case opens:
			levels = append(levels, &level{path: path})
		}
	}
}

// take is the path of the value that begins.
func (l *level) take() string {
	if l.names == nil {
		l.count++
		return l.path + "/" + strconv.Itoa(l.count-1)
	}
	path := l.path + l.name
	l.name = ""
	return path
}
