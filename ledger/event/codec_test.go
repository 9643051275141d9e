package event_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/ledger/event/record"
)

var update = flag.Bool("update", false, "write golden files for kinds that have none")

func newCodec(t testing.TB) *event.Codec {
	t.Helper()
	c, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// normal makes empty slices behind omitempty nil, which is what decoding
// gives; reflect.DeepEqual then compares values.
func normal(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			normal(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			normal(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Slice && f.Len() == 0 && bytes.Contains([]byte(v.Type().Field(i).Tag.Get("cbor")), []byte("omitempty")) {
				f.SetZero()
			}
			normal(f)
		}
	default:
	}
}

func TestRoundTrip(t *testing.T) {
	c := newCodec(t)
	for _, k := range event.Kinds() {
		t.Run(k.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				env := eventtest.RandomEnvelope(t, eventtest.Wild{})
				env.Event = eventtest.Random(t, k, eventtest.Wild{})
				other := eventtest.RandomEnvelope(t, eventtest.Wild{})
				batch := []event.Envelope{env, other}
				data, err := c.Encode(batch)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.Decode(data)
				if err != nil {
					t.Fatal(err)
				}
				for i := range batch {
					normal(reflect.ValueOf(batch[i].Event))
					if !reflect.DeepEqual(got[i], batch[i]) {
						t.Fatalf("decoded\n%+v\nwant\n%+v", got[i].Event, batch[i].Event)
					}
				}
				again, err := c.Encode(got)
				if err != nil || !bytes.Equal(again, data) {
					t.Fatalf("encoding what was decoded gives other bytes (%v)", err)
				}
			})
		})
	}
}

// TestIsCBOR compares with an independent implementation: what is written is
// CBOR that it reads to the same value, and what it writes is read here.
func TestIsCBOR(t *testing.T) {
	enc, err := cbor.EncOptions{OmitEmpty: cbor.OmitEmptyGoValue}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	dec, err := cbor.DecOptions{ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, DupMapKey: cbor.DupMapKeyEnforcedAPF,
		ByteStringToString: cbor.ByteStringToStringAllowed}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	var samples []any
	for _, k := range event.Kinds() {
		samples = append(samples, event.New(k))
	}
	set, err := record.Compile(event.Version, samples...)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := eventtest.RandomEnvelope(t, eventtest.Wild{}).Event
		ours, err := set.Append(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		normal(reflect.ValueOf(want))
		got := event.New(want.Kind())
		if err := dec.Unmarshal(ours, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("the other reader: %v\n%+v\nwant\n%+v", err, got, want)
		}
		theirs, err := enc.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if wf := cbor.Wellformed(theirs); wf != nil {
			t.Fatal(wf)
		}
		d := set.NewDecoder(theirs)
		back := event.New(want.Kind())
		err = d.Value(back)
		if errors.Is(err, record.ErrMalformed) && strings.Contains(err.Error(), "a text is not UTF-8") && !bytes.Equal(ours, theirs) {
			return // it writes such strings as text, which is no CBOR
		}
		if err != nil || d.Len() != 0 || !reflect.DeepEqual(back, want) {
			t.Fatalf("what the other wrote: %v, %d bytes left\n%+v\nwant\n%+v", err, d.Len(), back, want)
		}
	})
}

// TestGolden reads what every release wrote. The files are never rewritten:
// -update only adds those of new kinds.
func TestGolden(t *testing.T) {
	c := newCodec(t)
	type file struct {
		kind event.Kind
		name string
	}
	var list []file
	for _, k := range event.Kinds() {
		list = append(list, file{k, k.String()})
	}
	// Kinds that have grown, by what they grew.
	list = append(list, file{(&event.JobStarted{}).Kind(), "JobStarted.shares"}, file{(&event.AssociationPut{}).Kind(), "AssociationPut.guaranteed"}, file{(&event.AssociationPut{}).Kind(), "AssociationPut.budget"}, file{(&event.AssociationPut{}).Kind(), "AssociationPut.overquota"},
		file{(&event.JobEnded{}).Kind(), "JobEnded.epilog"}, file{(&event.JobRequeued{}).Kind(), "JobRequeued.epilog"}, file{(&event.ConfigAdopted{}).Kind(), "ConfigAdopted.fileparts"},
		file{(&event.TokenIssued{}).Kind(), "TokenIssued.login"}, file{(&event.ConfigAdopted{}).Kind(), "ConfigAdopted.filenodes"}, file{(&event.NodeAdded{}).Kind(), "NodeAdded.available"}, file{(&event.PartitionPut{}).Kind(), "PartitionPut.nodes"}, file{(&event.ConfigAdopted{}).Kind(), "ConfigAdopted.topologies"}, file{(&event.NodeAdded{}).Kind(), "NodeAdded.reserved"})
	for _, f := range list {
		k, path := f.kind, filepath.Join("testdata", "v1", f.name+".cbor")
		want := []event.Envelope{eventtest.FullEnvelope(k)}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && *update {
			if data, err = c.Encode(want); err == nil {
				err = os.WriteFile(path, data, 0o644)
			}
		}
		if err != nil {
			t.Errorf("%v (a new kind? run with -update)", err)
			continue
		}
		got, err := c.Decode(data)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if len(got) != 1 || got[0].Event.Kind() != k {
			t.Errorf("%s: decoded %d events, the first a %s", path, len(got), got[0].Event.Kind())
			continue
		}
		if again, err := c.Encode(got); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: encoded again it differs (%v)", path, err)
		}
		// Fields that were added later are zero in old files; all others are
		// as they were filled then.
		if zero := zeroFields(reflect.ValueOf(got[0].Event)); len(zero) == 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: decoded\n%+v\nwant\n%+v", path, got[0].Event, want[0].Event)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "v*", "*.cbor"))
	if err != nil || len(files) < len(event.Kinds()) {
		t.Errorf("%d golden files for %d kinds (%v)", len(files), len(event.Kinds()), err)
	}
}

// zeroFields lists the exported fields that are zero, at any depth.
func zeroFields(v reflect.Value) []string {
	var out []string
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return []string{v.Type().String()}
		}
		return zeroFields(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, zeroFields(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				out = append(out, v.Type().Name()+"."+v.Type().Field(i).Name)
			} else {
				out = append(out, zeroFields(v.Field(i))...)
			}
		}
	default:
	}
	return out
}

// TestFullIsFull guards the golden corpus: a field that the filler leaves
// zero would not be in it.
func TestFullIsFull(t *testing.T) {
	for _, k := range event.Kinds() {
		if zero := zeroFields(reflect.ValueOf(eventtest.Full(k))); len(zero) > 0 {
			t.Errorf("%s: %v are zero", k, zero)
		}
	}
}

func TestKinds(t *testing.T) {
	seen := make(map[event.Kind]bool)
	names := make(map[string]bool)
	for _, k := range event.Kinds() {
		e := event.New(k)
		if e == nil || e.Kind() != k {
			t.Errorf("New(%d) gives %T", k, e)
			continue
		}
		if name := reflect.TypeOf(e).Elem().Name(); k.String() != name {
			t.Errorf("kind %d is called %s, its type %s", k, k, name)
		}
		if seen[k] || names[k.String()] {
			t.Errorf("kind %d (%s) is listed twice", k, k)
		}
		seen[k], names[k.String()] = true, true
	}
	for k := range event.Kind(1000) {
		if e := event.New(k); (e != nil) != seen[k] || (k.String() != "unknown") != seen[k] {
			t.Errorf("kind %d: New gives %T, String %s, listed %v", k, e, k, seen[k])
		}
	}
}
