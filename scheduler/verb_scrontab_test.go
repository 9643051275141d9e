package scheduler_test

import (
	"strings"

	"github.com/musterhpc/muster/scheduler"
)

// scrontab replaces the crontab of whoever types; / separates its lines, and -- the
// options of sbatch from the time before them. Without lines it removes the crontab, with
// -l it prints it.
//
//	$ scrontab '0 * * * * -- -n2 -J hourly' / '@daily -- -J nightly'
func scrontab(s *session, args []string) error {
	uid := uidOf(s.user)
	if len(args) == 2 && args[1] == "-l" {
		if table := s.head.Crontab(uid); table != nil {
			s.printf("%s", table.Text)
			return nil
		}
		s.printf("no crontab for %s\n", s.user)
		return nil
	}
	cmd := scheduler.PutCrontab{UID: uid, User: s.user}
	for _, line := range args[1:] {
		if line == "/" {
			continue
		}
		cmd.Text += line + "\n"
		number := uint32(strings.Count(cmd.Text, "\n"))
		when, options, _ := strings.Cut(line, " -- ")
		js, _, err := s.jobSpec(words(options))
		if err != nil {
			return err
		}
		js.Cron = when
		cmd.Jobs = append(cmd.Jobs, scheduler.CronJob{Spec: js, First: number, Last: number})
	}
	res, err := s.decide(cmd)
	if err != nil {
		return err
	}
	s.printf("jobs %v\n", res.Jobs)
	return nil
}
