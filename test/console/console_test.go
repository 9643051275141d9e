package console

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/ports"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// lab is a cluster on this machine.
type lab struct {
	t   *testing.T
	bin string
	dir string
	at  string // address of the console
}

// patience bounds what should happen at once, on a machine that is busy.
const patience = time.Minute

func openLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("MUSTER_TEST_CONSOLE") == "" {
		t.Skip("MUSTER_TEST_CONSOLE is not set: make test-console sets it")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, bin: bin, dir: os.Getenv("MUSTER_CONSOLE_LAB")}
	if l.dir == "" {
		// A socket's path is short: the folder of the test's name may be too long.
		if l.dir, err = os.MkdirTemp("", "console"); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(l.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		l.must("init", "--dir", l.dir, "--nodes", "2", "--gpus", "4", "--gpu-type", "h100", "--port", strconv.Itoa(freePorts(t)))
		t.Cleanup(func() {
			l.must("down", "--dir", l.dir, "--jobs")
			if err := os.RemoveAll(l.dir); err != nil {
				t.Error(err)
			}
		})
		l.must("up", "--dir", l.dir)
	}
	conf, err := os.ReadFile(filepath.Join(l.dir, "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`web: (\S+)`).FindSubmatch(conf)
	if found == nil {
		t.Fatalf("the lab has no console: %s", conf)
	}
	l.at = "http://" + string(found[1])
	return l
}

// freePorts finds ports for a lab.
func freePorts(t *testing.T) int {
	t.Helper()
	start, err := new(ports.Finder).Free(ports.Lab)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// must runs a command of the cluster.
func (l *lab) must(args ...string) string {
	l.t.Helper()
	return l.run(nil, args...)
}

// nobody is the user who is not root in the tests.
const nobody = 65534

// run runs a command as another user; nil = as the test's own.
func (l *lab) run(as *syscall.SysProcAttr, args ...string) string {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(l.bin, "muster"), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(l.dir, "run", "muster.sock"), "PATH="+l.bin+":"+os.Getenv("PATH"))
	cmd.Dir = l.dir
	cmd.SysProcAttr = as
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// token is a user's token.
func (l *lab) token(user string) string {
	return strings.TrimPrefix(l.must("scontrol", "token", "username="+user), "SLURM_JWT=")
}

// browser opens a Chromium that is signed in as a user. It fails the test when
// a page logs an error, as it does when its policy forbids something.
func (l *lab) browser(user string) context.Context {
	l.t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1440, 900))
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	l.t.Cleanup(func() {
		cancel()
		cancelAlloc()
	})
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			l.t.Errorf("%s: a script failed: %s", user, e.ExceptionDetails.Error())
		case *page.EventJavascriptDialogOpening:
			l.t.Errorf("%s: a page opened a dialog: %s", user, e.Message)
		}
	})
	// The browser lives as long as the context with which it is first used.
	if err := chromedp.Run(ctx); err != nil {
		l.t.Fatal(err)
	}
	l.do(ctx, chromedp.Navigate(l.at+"/sign-in?next="+url.QueryEscape("/queue")+"#"+l.token(user)), chromedp.WaitVisible("table.jobs"))
	return ctx
}

func (l *lab) do(ctx context.Context, actions ...chromedp.Action) {
	l.t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := chromedp.Run(limited, actions...); err != nil {
		l.t.Fatal(err)
	}
}

// text is what a reader sees of the page.
func (l *lab) text(ctx context.Context) string {
	l.t.Helper()
	var out string
	l.do(ctx, chromedp.Text("main", &out, chromedp.ByQuery))
	return out
}

// shows waits until the page shows a text, without loading it again.
func (l *lab) shows(ctx context.Context, want string) {
	l.t.Helper()
	l.until(ctx, "document.getElementById('main').innerText.includes("+strconv.Quote(want)+")")
}

// until waits until something is true of the page.
func (l *lab) until(ctx context.Context, condition string) {
	l.t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		found := false
		// The page may be on its way to the next one, where there is nothing to ask.
		err := chromedp.Run(limited, chromedp.Evaluate(condition, &found))
		if found {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limited.Done():
			l.t.Fatalf("the page does not come to %s: %v", condition, err)
		}
	}
}

// TestConsole walks through the console as two users do.
func TestConsole(t *testing.T) {
	l := openLab(t)
	submit := func(args ...string) string {
		return l.must(append([]string{"sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null"}, args...)...)
	}
	hostile := `<img src=x onerror=alert(1)>`
	submit("-J", hostile, "--gres=gpu:2", "--wrap", "sleep 1000")
	root, other := l.browser("root"), l.browser("nobody")

	t.Run("names are text", func(t *testing.T) {
		l.t = t
		l.shows(root, hostile)
	})
	t.Run("a page updates itself", func(t *testing.T) {
		l.t = t
		submit("-J", "newcomer", "-N2", "--gres=gpu:4", "--wrap", "sleep 1000")
		l.shows(root, "newcomer")
		l.shows(other, "newcomer")
		l.shows(root, "Resources")
		for line := range strings.Lines(l.must("squeue", "-h", "-o", "%i|%j|%u|%T")) {
			for word := range strings.SplitSeq(strings.ToLower(strings.TrimSpace(line)), "|") {
				if !strings.Contains(strings.ToLower(l.text(root)), word) {
					t.Errorf("the page lacks %q of squeue's %s", word, line)
				}
			}
		}
	})
	id := submit("-J", "to-cancel", "--wrap", "sleep 1000")
	t.Run("the owner reads his script", func(t *testing.T) {
		l.t = t
		own := l.run(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}, "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "-J", "own", "--wrap", "sleep 2000")
		l.do(other, chromedp.Navigate(l.at+"/job/"+own), chromedp.WaitVisible("pre.script"))
		l.shows(other, "sleep 2000")
		l.shows(other, "scontrol write batch_script "+own)
		l.do(root, chromedp.Navigate(l.at+"/job/"+own), chromedp.WaitVisible("pre.script"))
		if text := l.text(root); strings.Contains(text, "scontrol write") {
			t.Error("an administrator is offered to run the script of another user")
		}
		l.do(other, chromedp.Navigate(l.at+"/job/"+id), chromedp.WaitVisible(".life"))
		if text := l.text(other); strings.Contains(text, "Its script") {
			t.Error("another user is offered the script")
		}
		l.do(other, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("table.jobs"))
		l.do(root, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("table.jobs"))
	})
	t.Run("the owner sees what his job writes", func(t *testing.T) {
		l.t = t
		l.follows(root, other)
	})
	t.Run("who may not change a job is offered nothing", func(t *testing.T) {
		l.t = t
		l.do(other, chromedp.Navigate(l.at+"/job/"+id), chromedp.WaitVisible(".life"))
		l.shows(other, "Job "+id+" to-cancel")
		if strings.Contains(l.text(other), "Cancel") {
			t.Error("another user is offered to cancel the job")
		}
	})
	t.Run("a job is cancelled from its page", func(t *testing.T) {
		l.t = t
		l.do(root, chromedp.Navigate(l.at+"/job/"+id), chromedp.Click("#do-cancel summary"), chromedp.WaitVisible("#do-cancel button"))
		if text := l.text(root); !strings.Contains(text, "scancel "+id) {
			t.Error("the page does not show the command that does the same")
		}
		l.do(root, chromedp.Click("#do-cancel button"), chromedp.WaitVisible(".notice"))
		l.shows(root, "cancelled")
		l.shows(other, "cancelled")
	})
	t.Run("a node is drained and resumed", func(t *testing.T) {
		l.t = t
		l.do(root, chromedp.Navigate(l.at+"/node/node1"), chromedp.Click("#do-drain summary"), chromedp.SendKeys("#do-drain input[name=reason]", "a new fan"),
			chromedp.Click("#do-drain button"), chromedp.WaitVisible(".notice"))
		l.shows(root, "a new fan")
		l.until(root, `document.querySelector("#events table")?.innerText.includes('state=drain reason="a new fan"')`)
		if state := l.must("sinfo", "-h", "-n", "node1", "-o", "%T"); !strings.HasPrefix(state, "drain") {
			t.Errorf("sinfo says %s", state)
		}
		l.do(root, chromedp.Click(".actions form button"))
		l.shows(root, "takes jobs again")
		l.do(other, chromedp.Navigate(l.at+"/node/node1"), chromedp.WaitVisible(".facts"))
		if strings.Contains(l.text(other), "Drain") {
			t.Error("a user is offered to drain a node")
		}
	})
	t.Run("typing filters", func(t *testing.T) {
		l.t = t
		l.do(root, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("#q"), chromedp.SendKeys("#q", "name:newcomer"))
		l.do(root, chromedp.Poll("location.search.includes('newcomer') && document.querySelectorAll('table.jobs tbody tr').length === 1", nil))
		var at string
		l.do(root, chromedp.Location(&at))
		if !strings.Contains(at, "newcomer") {
			t.Errorf("the address does not hold the filter: %s", at)
		}
	})
	t.Run("people see their limits, and names are text", func(t *testing.T) {
		l.t = t
		l.must("sacctmgr", "-i", "add", "account", "lab", "grptres=gres/gpu=8", "organization="+hostile)
		l.must("sacctmgr", "-i", "add", "user", "nobody", "account=lab", "maxjobs=3")
		l.do(other, chromedp.Navigate(l.at+"/people"), chromedp.WaitVisible("table.jobs"))
		l.shows(other, "What you may still use in account lab")
		l.shows(other, "MaxJobs")
		l.shows(other, "user nobody")
		l.do(other, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("table.jobs"), chromedp.KeyEvent("g"), chromedp.KeyEvent("p"))
		l.shows(other, "What you may still use in account lab")
	})
	t.Run("the past is shown", func(t *testing.T) {
		l.t = t
		l.travel(root, other, id, hostile)
	})
	t.Run("questions in SQL are answered", func(t *testing.T) {
		l.t = t
		l.question(root, other)
	})
	t.Run("reports show what muster kpi does", func(t *testing.T) {
		l.t = t
		l.do(root, chromedp.Navigate(l.at+"/reports"), chromedp.WaitVisible("table.jobs"))
		l.shows(root, "Throughput")
		l.shows(root, "What the figures mean")
		l.do(root, chromedp.SetValue("select[name=by]", "account"), chromedp.SetValue("select[name=kpi]", "gpu_bought"), chromedp.Click("form.choose button"), chromedp.WaitVisible("table.jobs"))
		l.until(root, "location.search.includes('kpi=gpu_bought') && document.querySelectorAll('table.jobs thead th').length === 7")
		l.do(other, chromedp.Navigate(l.at+"/reports?by=user"), chromedp.WaitVisible("main h1"))
		l.shows(other, "Reports")
	})
	t.Run("all links lead somewhere", func(t *testing.T) {
		l.t = t
		crawl(l, root)
	})
}

// question asks questions in SQL with the help of completion. Each user sees on the
// page what muster sql prints to him.
func (l *lab) question(root, other context.Context) {
	l.t.Helper()
	const count = "SELECT user, count() AS n FROM jobs GROUP BY user ORDER BY user"
	asNobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	for _, who := range []struct {
		ctx context.Context
		as  *syscall.SysProcAttr
	}{{root, nil}, {other, asNobody}} {
		// The first question may come before accounting has read of the jobs.
		want := ""
		for !strings.Contains(want, "nobody") {
			want = l.run(who.as, "sql", "-n", count)
		}
		l.do(who.ctx, chromedp.Navigate(l.at+"/sql"), chromedp.WaitVisible("#question"), chromedp.SendKeys("#question", count), chromedp.Click("#sql button.main"), chromedp.WaitVisible(".result"))
		var cells []string
		l.do(who.ctx, chromedp.Evaluate("[...document.querySelectorAll('.result tbody td')].map(td => td.innerText.trim())", &cells))
		if got := strings.Join(cells, " "); got != strings.Join(strings.Fields(want), " ") {
			l.t.Errorf("the page shows %q, muster sql\n%s", got, want)
		}
	}
	// A word that is begun is completed.
	var text, link string
	l.do(root, chromedp.Navigate(l.at+"/sql"), chromedp.WaitVisible("#question"), chromedp.SendKeys("#question", "SELECT name FROM pending_rea"), chromedp.WaitVisible("#words li"),
		chromedp.SendKeys("#question", "\t"), chromedp.Value("#question", &text))
	if text != "SELECT name FROM pending_reasons" {
		l.t.Errorf("completion gives %q", text)
	}
	// Names of jobs are text, and the address is a link to the question.
	l.do(other, chromedp.Navigate(l.at+"/sql?q="+url.QueryEscape("SELECT '<img src=x onerror=alert(1)>' AS name, count() AS n FROM jobs")), chromedp.WaitVisible(".result"))
	l.shows(other, "<img src=x onerror=alert(1)>")
	l.do(other, chromedp.AttributeValue(`a[href*="format=csv"]`, "href", &link, nil))
	var file string
	l.do(other, chromedp.Evaluate("fetch("+strconv.Quote(link)+").then(r => r.text())", &file, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if !strings.HasPrefix(file, `"name","n"`) {
		l.t.Errorf("the file is %q", file)
	}
	l.do(other, chromedp.Navigate(l.at+"/sql?q="+url.QueryEscape("DROP TABLE jobs")), chromedp.WaitVisible("[role=alert]"))
}

// follows looks at what a job writes, while it writes it: its owner sees it come, as
// text, and others are offered nothing. muster tail prints the same bytes.
func (l *lab) follows(root, other context.Context) {
	l.t.Helper()
	dir, err := os.MkdirTemp("", "output")
	if err != nil {
		l.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		l.t.Fatal(err)
	}
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	id := l.run(as, "sbatch", "--parsable", "--chdir="+dir, "--output=out", "-J", "writes",
		"--wrap", `echo '<img src=x onerror=alert(1)>'; until [ -e go ]; do sleep 0.1; done; echo second; until [ -e end ]; do sleep 0.1; done; echo last`)
	l.do(other, chromedp.Navigate(l.at+"/job/"+id), chromedp.WaitVisible("#output pre"))
	l.shows(other, "<img src=x onerror=alert(1)>")
	l.do(root, chromedp.Navigate(l.at+"/job/"+id), chromedp.WaitVisible(".life"))
	if text := l.text(root); strings.Contains(text, "Its output") {
		l.t.Error("an administrator is offered the output of another user")
	}
	l.do(root, chromedp.Navigate(l.at+"/job/"+id+"/output"), chromedp.WaitVisible("main"))
	l.shows(root, "only its user and root read what a job writes")
	touch := func(name string) {
		l.t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	touch("go")
	l.shows(other, "second")
	touch("end")
	l.shows(other, "last")
	l.shows(other, "The job has ended.")
	if got, want := l.run(as, "tail", id, "-f"), "<img src=x onerror=alert(1)>\nsecond\nlast"; got != want {
		l.t.Errorf("muster tail prints %q, want %q", got, want)
	}
	l.do(other, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("table.jobs"))
	l.do(root, chromedp.Navigate(l.at+"/queue"), chromedp.WaitVisible("table.jobs"))
}

// travel looks at the cluster as it was before the job was cancelled: by what is
// typed, by the slider, by playing and by a link that somebody else opens. It shows
// what muster at prints, and offers no change to who may make it.
func (l *lab) travel(root, other context.Context, cancelled, hostile string) {
	l.t.Helper()
	var before string
	for line := range strings.Lines(l.must("events", "-j", cancelled, "-k", "JobEnded")) {
		seq, err := strconv.Atoi(strings.Fields(line)[0])
		if err == nil {
			before = "#" + strconv.Itoa(seq-1)
		}
	}
	if before == "" {
		l.t.Fatal("muster events knows no end of the job")
	}
	l.do(root, chromedp.Navigate(l.at+"/queue"), chromedp.Click(".look summary"), chromedp.SendKeys(".look input[name=at]", before+"\r"), chromedp.WaitVisible("#moment"))
	l.shows(root, "to-cancel")
	l.shows(root, hostile)
	var at, text string
	l.do(root, chromedp.Location(&at), chromedp.Text("#moment", &text))
	if !strings.Contains(at, "at=%23") || !strings.Contains(text, "The past") {
		l.t.Errorf("%s shows %q", at, text)
	}
	for line := range strings.Lines(l.must("at", before, "squeue", "-h", "-o", "%i|%j|%u|%T")) {
		for word := range strings.SplitSeq(strings.ToLower(strings.TrimSpace(line)), "|") {
			if !strings.Contains(strings.ToLower(l.text(root)), word) {
				l.t.Errorf("the page lacks %q of muster at's %s", word, line)
			}
		}
	}
	// The links of the page stay at the moment.
	l.do(root, chromedp.Click(`//table//a[text()="`+cancelled+`"]`, chromedp.BySearch), chromedp.WaitVisible(".life"), chromedp.Location(&at))
	if !strings.Contains(at, "/job/"+cancelled+"?at=%23") || strings.Contains(l.text(root), "Cancel…") || strings.Contains(l.text(root), "cancelled") {
		l.t.Errorf("%s is not the job as it was:\n%s", at, l.text(root))
	}
	// Somebody else opens the link.
	l.do(other, chromedp.Navigate(at), chromedp.WaitVisible("#moment"))
	l.shows(other, "Job "+cancelled+" to-cancel")
	// The slider goes to where it is set, and the address follows.
	l.do(root, chromedp.Navigate(l.at+"/nodes?at="+url.QueryEscape(before)), chromedp.WaitVisible("#pos"), chromedp.Focus("#pos"), chromedp.KeyEvent(kb.ArrowLeft))
	l.do(root, chromedp.Poll("/at=\\d{4}-/.test(decodeURIComponent(location.search)) && document.querySelector('#moment .when').innerText.includes('ago')", nil))
	// Playing moves on by itself, and ends now, where changes are offered again.
	l.do(root, chromedp.Click("#play"))
	l.until(root, "!location.search && !!document.querySelector('#live.on')")
	l.do(root, chromedp.Navigate(l.at+"/nodes?at="+url.QueryEscape(before)), chromedp.WaitVisible("[data-present]"), chromedp.Click("[data-present]"), chromedp.WaitVisible("#live.on"), chromedp.Location(&at))
	if at != l.at+"/nodes" {
		l.t.Errorf("back to now leads to %s", at)
	}
	// A moment that is not known says what is.
	l.do(root, chromedp.Navigate(l.at+"/queue?at=2001-01-01T00:00:00Z"), chromedp.WaitVisible("main"))
	l.shows(root, "the past is known from")
}

// crawl follows the links of the console within the pages that it has.
func crawl(l *lab, ctx context.Context) {
	l.t.Helper()
	open, seen := []string{"/"}, map[string]bool{"/": true}
	for len(open) > 0 && len(seen) < 120 {
		at := open[0]
		open = open[1:]
		var answer struct {
			Status int      `json:"status"`
			Links  []string `json:"links"`
		}
		l.do(ctx, chromedp.Evaluate(`fetch(`+strconv.Quote(at)+`).then(async r => ({status: r.status, links: [...new DOMParser().parseFromString(await r.text(), "text/html").querySelectorAll("a[href]")].map(a => a.getAttribute("href"))}))`,
			&answer, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		if answer.Status != 200 {
			l.t.Errorf("%s answers %d", at, answer.Status)
		}
		for _, link := range answer.Links {
			if strings.HasPrefix(link, "/") && !seen[link] {
				seen[link] = true
				open = append(open, link)
			}
		}
	}
}

// TestScreenshots takes pictures of the pages.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("MUSTER_SCREENSHOTS")
	if folder == "" {
		t.Skip("MUSTER_SCREENSHOTS is not set")
	}
	l := openLab(t)
	ctx := l.browser("root")
	// MUSTER_SCREENSHOT_AT is a moment of the past, as an address has it.
	job := os.Getenv("MUSTER_SCREENSHOT_JOBS") // of a job that waits, and one that runs, with a comma
	waiting, running, _ := strings.Cut(job, ",")
	owner := os.Getenv("MUSTER_SCREENSHOT_OWNER") // of the job that runs
	for _, one := range []struct{ name, path string }{
		{"now", "/"}, {"queue", "/queue"}, {"nodes", "/nodes"}, {"gpus", "/gpus"}, {"people", "/people?all=1"}, {"what-if", "/what-if?c=" + url.QueryEscape("add 2 nodes like node1")}, {"cluster", "/cluster"}, {"sql", "/sql?q=" + url.QueryEscape("SELECT name, count() AS runs, round(avg(dateDiff('second', start, end))) AS seconds FROM jobs GROUP BY name ORDER BY runs DESC LIMIT 12")},
		{"reports", "/reports?by=account"}, {"node", "/node/node1"}, {"findings", "/findings?window=1d"}, {"past", "/nodes?at=" + os.Getenv("MUSTER_SCREENSHOT_AT")}, {"why", "/job/" + waiting}, {"job", "/job/" + running}, {"output", "/job/" + running},
	} {
		ctx := ctx
		if strings.HasSuffix(one.path, "/job/") || strings.HasSuffix(one.path, "?at=") {
			continue
		}
		if one.name == "output" && owner == "" {
			continue
		}
		if owner != "" && (one.name == "output" || one.name == "people") {
			ctx = l.browser(owner) // output is shown to its owner only, and limits bind him
		}
		for _, look := range []string{"light", "dark", "phone"} {
			view, colours := chromedp.EmulateViewport(1360, 850), look
			if look == "phone" {
				view, colours = chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), "light"
			}
			var seen, all []byte
			wide := false
			l.do(ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}),
				view, chromedp.Navigate(l.at+one.path), chromedp.WaitVisible("main h1"),
				chromedp.Poll("[...document.querySelectorAll('[data-src]')].every(part => part.querySelector('section, details'))", nil),
				chromedp.Evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth", &wide),
				chromedp.CaptureScreenshot(&seen), chromedp.FullScreenshot(&all, 100))
			if wide {
				t.Errorf("%s (%s) is wider than its window", one.path, look)
			}
			for name, picture := range map[string][]byte{"console-": seen, "whole-": all} {
				if err := os.WriteFile(filepath.Join(folder, name+one.name+"-"+look+".png"), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
