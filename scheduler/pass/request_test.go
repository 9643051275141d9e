package pass

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// notAsked names the fields of a job that say nothing about what one class of jobs
// has in common, each with the reason why jobs that differ in it may share a class.
var notAsked = map[string]string{
	"Spec.Name":                "singleton looks at each job's own",
	"Spec.GID":                 "the job runs with it",
	"Spec.User":                "follows from UID",
	"Spec.Groups":              "the job runs with them",
	"Spec.WCKey":               "accounting only",
	"Spec.Comment":             "shown only",
	"Spec.Extra":               "shown only",
	"Spec.AdminComment":        "shown only",
	"Spec.SystemComment":       "shown only",
	"Spec.Cron":                "it brings the job back when it has ended",
	"Spec.IO":                  "for the job's processes",
	"Spec.X11":                 "for the job's processes",
	"Spec.Script":              "for the job's processes",
	"Spec.Env":                 "for the job's processes",
	"Spec.Args":                "for the job's processes",
	"Spec.Command":             "for the job's processes",
	"Spec.Line":                "shown only",
	"Spec.Host":                "shown only",
	"Spec.Shell":               "for the job's processes",
	"Spec.GPUBind":             "for the job's processes",
	"Spec.GPUFreq":             "for the job's processes",
	"Spec.Attended":            "for the job's processes",
	"Spec.SampleEvery":         "for the job's processes",
	"Spec.Container":           "for the job's processes",
	"Spec.Time.Begin":          "a job that waits for it is in no class",
	"Spec.Time.Deadline":       "looked at for each job",
	"Spec.Time.Signal":         "for the running job",
	"Spec.Time.SignalBefore":   "for the running job",
	"Spec.Time.SignalBatch":    "for the running job",
	"Spec.Time.SignalResv":     "for the running job",
	"Spec.Queue.Hold":          "a held job is in no class",
	"Spec.Queue.Requeue":       "for the running job",
	"Spec.Queue.Array":         "looked at for each record",
	"Spec.Queue.Dependency":    "looked at for each job",
	"Spec.Queue.KillInvalid":   "looked at for each job",
	"Spec.Queue.MailTypes":     "for mail",
	"Spec.Queue.MailUser":      "for mail",
	"Spec.Queue.ImmediateOnly": "refused at submission",
	"Spec.Queue.NoKill":        "for the running job",
	"Req.Energy":               "no job asks for it",
}

// TestSameRequestLooksAtEveryField fails for a field of a request that sameRequest
// neither compares nor ignores for a reason that notAsked gives: jobs that differ in
// it would get one class, and so one answer.
func TestSameRequestLooksAtEveryField(t *testing.T) {
	fields := map[string]bool{}
	for _, part := range []string{"Spec", "Req"} {
		job := newRequest()
		eachField(part, reflect.ValueOf(job).Elem().FieldByName(part), func(path string, _ reflect.Value) { fields[path] = true })
	}
	for path := range fields {
		a, b := newRequest(), newRequest()
		eachField("Spec", reflect.ValueOf(b).Elem().FieldByName("Spec"), func(at string, v reflect.Value) {
			if at == path {
				change(t, at, v)
			}
		})
		eachField("Req", reflect.ValueOf(b).Elem().FieldByName("Req"), func(at string, v reflect.Value) {
			if at == path {
				change(t, at, v)
			}
		})
		why, ignored := notAsked[path]
		switch same := sameRequest(a, b); {
		case same && !ignored:
			t.Errorf("%s: sameRequest does not compare it: compare it, or say in notAsked why not", path)
		case !same && ignored:
			t.Errorf("%s: sameRequest compares it, and notAsked says %q", path, why)
		}
	}
	for path := range notAsked {
		if !fields[path] {
			t.Errorf("notAsked names %s, which no request has", path)
		}
	}
}

// Equal requests hash alike, since a class is looked for under the hash.
func TestHashRequestAgreesWithSameRequest(t *testing.T) {
	for path := range notAsked {
		a, b := newRequest(), newRequest()
		eachField("Spec", reflect.ValueOf(b).Elem().FieldByName("Spec"), func(at string, v reflect.Value) {
			if at == path {
				change(t, at, v)
			}
		})
		if hashRequest(a) != hashRequest(b) {
			t.Errorf("%s: requests that are the same have different hashes", path)
		}
	}
}

func newRequest() *state.Job {
	return &state.Job{UID: 1, Spec: &spec.JobSpec{Partitions: []string{"main"}}}
}

// eachField visits the fields of a request: those of structs one by one, anything
// else as a whole.
func eachField(path string, v reflect.Value, visit func(path string, v reflect.Value)) {
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		v = v.Elem()
	}
	grouped := path == "Spec" || path == "Req" || path == "Spec.Size" || path == "Spec.Time" || path == "Spec.Place" || path == "Spec.Queue"
	if !grouped {
		visit(path, v)
		return
	}
	for i := range v.NumField() {
		eachField(path+"."+v.Type().Field(i).Name, v.Field(i), visit)
	}
}

// change gives a field another value.
func change(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if !fill(v) {
		t.Fatalf("%s: the test cannot change a %s: teach it", path, v.Kind())
	}
}

func fill(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		more := reflect.New(v.Type().Elem()).Elem()
		if !fill(more) {
			return false
		}
		v.Set(reflect.Append(v, more))
	case reflect.Array:
		return fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && fill(v.Field(i)) {
				return true
			}
		}
		return false
	default:
		panic(fmt.Sprint(v.Kind()))
	}
	return true
}

// Jobs of pods that may go to different nodes are no class, whatever else they have in common.
func TestPodsThatGoElsewhereAreAnotherClass(t *testing.T) {
	a, b := newRequest(), newRequest()
	a.Spec.Pods = &spec.PodSet{Owner: "Deployment/a", Admits: "n[1-2]"}
	b.Spec.Pods = &spec.PodSet{Owner: "Deployment/b", Admits: "n[1-2]"}
	if !sameRequest(a, b) {
		t.Error("pods of other owners that may go to the same nodes are another class")
	}
	b.Spec.Pods.Admits = "n3"
	if sameRequest(a, b) {
		t.Error("pods that may go to other nodes are the same class")
	}
}
