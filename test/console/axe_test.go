package console

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeVersion is the release of axe-core by which pages are judged.
const axeVersion = "4.14.1"

// axe is the script that judges a page. npm gets it: nothing that Muster ships
// has it.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"npm", "pack", "--silent", "axe-core@" + axeVersion}, {"tar", "xzf", "axe-core-" + axeVersion + ".tgz", "package/axe.min.js"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "package", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// TestAccessible: axe-core finds nothing on any page, in either set of colours, and none is wider
// than a phone, on which the queue says why jobs wait.
func TestAccessible(t *testing.T) {
	l := openLab(t)
	script := axe(t)
	submit := func(args ...string) string {
		return l.must(append([]string{"sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null"}, args...)...)
	}
	running := submit("-J", "runs", "--gres=gpu:2", "--wrap", "sleep 1000")
	waiting := submit("-J", "waits", "-N2", "--gres=gpu:4", "--wrap", "sleep 1000")
	past := url.QueryEscape("#" + strings.Fields(l.must("events", "-j", waiting, "-k", "JobSubmitted"))[0])
	ctx := l.browser("root")
	for _, look := range []string{"light", "dark"} {
		for _, path := range []string{"/", "/queue", "/queue?group=user", "/nodes", "/gpus", "/gpus?state=free", "/node/node1", "/people", "/people?all=1", "/cluster", "/reports", "/reports?by=account", "/findings", "/findings?window=1d&user=root", "/sql?q=" + url.QueryEscape("SELECT state, count() AS n FROM jobs GROUP BY state"), "/what-if", "/what-if?c=" + url.QueryEscape("scancel "+running), "/job/" + waiting, "/job/" + running, "/queue?at=" + past, "/node/node1?at=" + past, "/gpus?at=" + past, "/sign-in"} {
			var found string
			var ignored any
			l.do(ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look}}),
				chromedp.Navigate(l.at+path), chromedp.WaitVisible("main h1"),
				chromedp.Poll("[...document.querySelectorAll('[data-src]')].every(part => part.querySelector('section, details'))", nil),
				chromedp.Evaluate(script+";1", &ignored),
				chromedp.Evaluate(`axe.run().then(r => r.violations.map(v => v.impact + " " + v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join("\n")).join("\n"))`, &found,
					func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			if found != "" {
				t.Errorf("%s in %s colours:\n%s", path, look, found)
			}
			if look == "light" {
				continue
			}
			wide := ""
			reasons := false
			l.do(ctx, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
				chromedp.Evaluate(`(d => d.scrollWidth > d.clientWidth ? d.scrollWidth + " pixels" : "")(document.documentElement)`, &wide),
				chromedp.Evaluate(`[...document.querySelectorAll("td.why b")].some(b => b.checkVisibility() && b.getBoundingClientRect().right <= innerWidth)`, &reasons),
				chromedp.EmulateViewport(1360, 850))
			if path == "/queue" && !reasons {
				t.Error("the queue shows no reason on a phone")
			}
			if wide != "" {
				t.Errorf("%s is %s wide on a phone of 390", path, wide)
			}
		}
	}
}
