package stepclient

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// What no message can carry back to the nodes ends the client, which would else
// send it, lose its connection and send it again, without end.
func TestAFenceThatIsTooLarge(t *testing.T) {
	c := New(Config{Nodes: []Node{{Name: "n1"}, {Name: "n2"}}})
	const size = mostFence/2 + 1
	for i, key := range []string{"a", "b"} {
		data := append([]byte{1}, key...)
		data = append(binary.AppendUvarint(data, size), make([]byte, size)...)
		err := c.fence(&plan.Fence{Number: 1, Node: uint32(i), Data: data})
		if last := i == 1; (err != nil) != last || last && !strings.Contains(err.Error(), "before a fence") {
			t.Errorf("after node %d: %v", i, err)
		}
	}
}
