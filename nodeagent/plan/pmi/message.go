package pmi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// message is a command with its values, in their order.
type message struct {
	cmd   string
	pairs [][2]string
}

func (m message) get(key string) string {
	for _, p := range m.pairs {
		if p[0] == key {
			return p[1]
		}
	}
	return ""
}

// nextMessage takes the first message out of what a task has sent; n is its length, 0
// while it is not whole.
func nextMessage(t *task) (m message, n int, err error) {
	if t.version == 2 {
		return nextSecond(t.buffer)
	}
	i := bytes.IndexByte(t.buffer, '\n')
	if i < 0 {
		if len(t.buffer) > maxMessage {
			return m, 0, fmt.Errorf("%w: a line without an end", ErrProtocol)
		}
		return m, 0, nil
	}
	return parseFirst(string(t.buffer[:i])), i + 1, nil
}

// parseFirst reads a line of PMI-1: NAME=VALUE, separated by blanks; a value
// called value may hold blanks and is the last.
func parseFirst(line string) message {
	var m message
	rest := strings.TrimLeft(line, " ")
	for rest != "" {
		name, after, ok := strings.Cut(rest, "=")
		value := after
		if !ok {
			name, _, _ = strings.Cut(rest, " ")
			_, rest, _ = strings.Cut(rest, " ")
			m.addPair(name, "")
			continue
		}
		if name == "value" {
			rest = ""
		} else {
			value, rest, _ = strings.Cut(after, " ")
		}
		m.addPair(name, value)
		rest = strings.TrimLeft(rest, " ")
	}
	return m
}

func (m *message) addPair(name, value string) {
	if m.cmd == "" && (name == "cmd" || name == "mcmd") {
		m.cmd = value
		return
	}
	m.pairs = append(m.pairs, [2]string{name, value})
}

// lengthDigits is the width of a PMI-2 message's length.
const lengthDigits = 6

// nextSecond reads a message of PMI-2: its length and then NAME=VALUE; with
// semicolons in values written twice.
func nextSecond(data []byte) (m message, n int, err error) {
	if len(data) < lengthDigits {
		return m, 0, nil
	}
	size, err := strconv.ParseUint(strings.TrimSpace(string(data[:lengthDigits])), 10, 32)
	if err != nil || size == 0 || size > maxMessage {
		return m, 0, fmt.Errorf("%w: a length of %q", ErrProtocol, data[:lengthDigits])
	}
	n = lengthDigits + int(size)
	if len(data) < n {
		return m, 0, nil
	}
	text := strings.TrimRight(string(data[lengthDigits:n]), "\x00\n")
	for text != "" {
		name, after, ok := strings.Cut(text, "=")
		if !ok {
			return m, 0, fmt.Errorf("%w: %q has no value", ErrProtocol, text)
		}
		var value strings.Builder
		i := 0
		for ; i < len(after); i++ {
			if after[i] == ';' {
				if i+1 < len(after) && after[i+1] == ';' {
					i++
				} else {
					break
				}
			}
			value.WriteByte(after[i])
		}
		m.addPair(name, value.String())
		text = after[min(i+1, len(after)):]
	}
	if m.cmd == "" {
		return m, 0, fmt.Errorf("%w: no command", ErrProtocol)
	}
	return m, n, nil
}

// formatSecond writes a message of PMI-2.
func formatSecond(pairs ...string) string {
	var text strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		text.WriteString(pairs[i])
		text.WriteByte('=')
		text.WriteString(strings.ReplaceAll(pairs[i+1], ";", ";;"))
		text.WriteByte(';')
	}
	return fmt.Sprintf("%-*d%s", lengthDigits, text.Len(), text.String())
}

// encodePairs writes keys and values, each with its length, in the keys' order.
func encodePairs(kvs map[string]string) []byte {
	keys := make([]string, 0, len(kvs))
	for k := range kvs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []byte
	for _, k := range keys {
		out = appendString(appendString(out, k), kvs[k])
	}
	return out
}

func appendString(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}

// decodePairs reads what encode writes.
func decodePairs(data []byte, each func(k, v string)) error {
	for len(data) > 0 {
		var pair [2]string
		for i := range pair {
			n, w := binary.Uvarint(data)
			if w <= 0 || n > uint64(len(data)-w) {
				return fmt.Errorf("%w: what the nodes have put is cut off", ErrProtocol)
			}
			pair[i], data = string(data[w:w+int(n)]), data[w+int(n):]
		}
		each(pair[0], pair[1])
	}
	return nil
}

// Merge makes one message of what several nodes have put.
func Merge(parts [][]byte) ([]byte, error) {
	all := map[string]string{}
	for _, p := range parts {
		if err := decodePairs(p, func(k, v string) { all[k] = v }); err != nil {
			return nil, err
		}
	}
	return encodePairs(all), nil
}

// Mapping writes PMI_process_mapping: which node each rank is on, as blocks of
// (first node, number of nodes, tasks on each).
func Mapping(nodeOf []uint32) string {
	type block struct{ first, nodes, tasks int }
	var blocks []block
	for i := 0; i < len(nodeOf); {
		j := i
		for j < len(nodeOf) && nodeOf[j] == nodeOf[i] {
			j++
		}
		node, tasks := int(nodeOf[i]), j-i
		if n := len(blocks); n > 0 && blocks[n-1].first+blocks[n-1].nodes == node &&
			blocks[n-1].tasks == tasks {
			blocks[n-1].nodes++
		} else {
			blocks = append(blocks, block{node, 1, tasks})
		}
		i = j
	}
	var text strings.Builder
	text.WriteString("(vector")
	for _, x := range blocks {
		fmt.Fprintf(&text, ",(%d,%d,%d)", x.first, x.nodes, x.tasks)
	}
	text.WriteByte(')')
	return text.String()
}
