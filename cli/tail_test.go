package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// readOutput answers for a job that has written three lines, and one of errors.
func readOutput(req proto.Message) (proto.Message, error) {
	asked := req.(*apiv1.ReadOutputRequest)
	text := "first\nsecond\nthird\n"
	if asked.GetErr() {
		text = "oops\n"
	}
	return partOf(text, asked, true), nil
}

// partOf is the answer of a node whose file holds a text.
func partOf(text string, asked *apiv1.ReadOutputRequest, over bool) *apiv1.ReadOutputReply {
	size := int64(len(text))
	from := asked.GetFrom()
	most := asked.GetMost()
	if most == 0 {
		most = 64 << 10
	}
	if from < 0 {
		from = max(size-most, 0)
	}
	first := min(from, size)
	return &apiv1.ReadOutputReply{Data: []byte(text[first:min(first+most, size)]), From: from, Size: size, Over: over}
}

// TestTail: the end of the file begins with a whole line.
func TestTail(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodReadOutput] = readOutput
	for line, want := range map[string]string{
		"muster tail 36":            "first\nsecond\nthird\n",
		"muster tail 36 --err":      "oops\n",
		"muster tail 36 --bytes 10": "third\n",
		"muster tail 36 -c 3":       "rd\n",
	} {
		if r := w.run(strings.Fields(line)...); r.out != want || r.code != 0 {
			t.Errorf("%s: %d %q %s", line, r.code, r.out, r.errOut)
		}
	}
	for line, want := range map[string]string{
		"muster tail":               "expected one job",
		"muster tail 1 2":           "expected one job",
		"muster tail 'x":            "expected one job",
		"muster tail 36 -c 0":       "from 1 to 65536",
		"muster tail 36 -c 1000000": "from 1 to 65536",
	} {
		if r := w.run(strings.Fields(line)...); r.code == 0 || !strings.Contains(r.errOut, want) {
			t.Errorf("%s: %d %s", line, r.code, r.errOut)
		}
	}
}

// TestTailFollows: --follow waits for a job that is pending, prints each byte once,
// begins again when the file was truncated, and ends with the job.
func TestTailFollows(t *testing.T) {
	w := newWorld(t)
	step := 0
	w.reply[tool.MethodReadOutput] = func(req proto.Message) (proto.Message, error) {
		asked := req.(*apiv1.ReadOutputRequest)
		step++
		switch step {
		case 1, 2:
			return nil, spec.Refuse(spec.CodeJobPending, "the job has not started")
		case 3:
			return partOf("one\n", asked, false), nil
		case 4:
			return partOf("one\ntwo\n", asked, false), nil
		case 5:
			return nil, spec.Refuse(spec.CodeUnreachable, "the agent is away")
		case 6, 7:
			return partOf("new\n", asked, false), nil
		}
		return partOf("new\nend\n", asked, true), nil
	}
	r := w.run("muster", "tail", "36", "-f")
	if r.code != 0 || r.out != "one\ntwo\nnew\nend\n" {
		t.Errorf("%d %q", r.code, r.out)
	}
	if strings.Count(r.errOut, "has not started") != 1 || strings.Count(r.errOut, "truncated") != 1 || strings.Count(r.errOut, "is away") != 1 {
		t.Errorf("messages:\n%s", r.errOut)
	}
	w.reply[tool.MethodReadOutput] = func(proto.Message) (proto.Message, error) {
		return nil, spec.Refuse(spec.CodeAccessDenied, "only its user and root")
	}
	if r := w.run("muster", "tail", "36", "-f"); r.code == 0 {
		t.Errorf("a job of somebody else: %q", r.out)
	}
}
