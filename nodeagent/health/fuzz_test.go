package health

import "testing"

// FuzzConfigure: a rule that is accepted is one of those that there are.
func FuzzConfigure(f *testing.F) {
	for _, text := range []string{"disk_space warn 5%", "clock_error drain 500ms", "stuck_tasks off", "memory_corrected warn 7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Configure([]string{text})
		if err != nil {
			if err.Error() == "" {
				t.Fatalf("%q is refused without a word", text)
			}
			return
		}
		if len(rules) != len(Rules()) {
			t.Fatalf("%q makes %d rules of %d", text, len(rules), len(Rules()))
		}
		for _, r := range rules {
			if r.Limit < 0 {
				t.Fatalf("%q: %+v", text, r)
			}
		}
	})
}
