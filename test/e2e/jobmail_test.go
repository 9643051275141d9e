package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestJobsSendMail: MailProg is run for what jobs ask mail for, as Slurm runs it, and reads how
// well a run that is over used what it held.
func TestJobsSendMail(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program, got := filepath.Join(dir, "mailer"), filepath.Join(dir, "mails")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$SLURM_JOB_MAIL_TYPE $3: $2\" >>"+got+"\ncat >"+dir+"/text-$SLURM_JOB_ID-$SLURM_JOB_MAIL_TYPE\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, "MailProg="+program, "MailDomain=site.org")
	c.must("sbatch", "-J", "train", "--mail-type=FAIL", "--mail-user=ann", "--wrap", "exit 3")
	c.must("sbatch", "-J", "quiet", "--wrap", "exit 4")
	c.must("sbatch", "-J", "loud", "--gpus=1", "--mail-type=ALL", "--mail-user=bob@other.org", "--wrap", "true")
	c.untilShell("grep -q '^FAIL ann@site.org: Slurm Job_id=1 Name=train Failed, Run time 00:00:0., FAILED, ExitCode 3$' " + got)
	c.untilShell("grep -q '^BEGIN bob@other.org: Slurm Job_id=3 Name=loud Began, ' " + got)
	c.untilShell("grep -q '^END bob@other.org: Slurm Job_id=3 Name=loud Ended, .*COMPLETED, ExitCode 0$' " + got)
	c.untilShell("test $(wc -l <" + got + ") -eq 3")
	c.untilShell("test ! -s " + dir + "/text-3-BEGIN")
	c.untilShell("head -n1 " + dir + "/text-1-FAIL | grep -q '^Job 1 train of .*: FAILED$'")
	for _, line := range []string{"^Job 3 loud of .*: COMPLETED$", "^  Ran  *00:00:0. of ", "^  CPU  *[0-9.]* %, [0-9.]* of ", "^  Memory  *[0-9.]* %, peak ", "^  GPU  "} {
		c.untilShell("grep -q '" + line + "' " + dir + "/text-3-END")
	}
}
