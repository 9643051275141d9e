package tool

import (
	"bytes"
	"os"
	"testing"
)

// TestWhileRead: the context ends with the reader of a pipe and not before, and what
// has no reader that could go does not end it.
func TestWhileRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := WhileRead(t.Context(), w)
	defer stop()
	if _, err := w.WriteString("a line"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 9)); err != nil || ctx.Err() != nil {
		t.Errorf("while somebody reads: %v, %v", err, ctx.Err())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	other, stop := WhileRead(t.Context(), &bytes.Buffer{})
	if other.Err() != nil {
		t.Error("a buffer has no reader who could go")
	}
	stop()
}
