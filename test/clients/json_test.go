package clients

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// lacks says what a document does not hold of pairs of a path and a value.
func lacks(text, pairs string) string {
	var doc any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return fmt.Sprintf("%v\n%s", err, text)
	}
	for _, pair := range strings.Fields(pairs) {
		path, want, _ := strings.Cut(pair, "=")
		if got := lookUp(doc, strings.Split(path, ".")); got != want {
			return fmt.Sprintf("%s is %q, expected %q", path, got, want)
		}
	}
	return ""
}

// lookUp follows a path of keys and indices. An element of a list may be chosen by
// one of its own values, as clients do: "nodes.name:node1.state".
func lookUp(doc any, path []string) string {
	for i, key := range path {
		switch value := doc.(type) {
		case map[string]any:
			doc = value[key]
		case []any:
			field, wanted, chosen := strings.Cut(key, ":")
			if !chosen {
				n, err := strconv.Atoi(key)
				if err != nil || n >= len(value) {
					return "(no element " + key + ")"
				}
				doc = value[n]
				continue
			}
			doc = nil
			for _, element := range value {
				if lookUp(element, []string{field}) == wanted {
					doc = element
					break
				}
			}
		default:
			return "(nothing at " + strings.Join(path[:i], ".") + ")"
		}
	}
	if text, ok := doc.(string); ok {
		return text
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
