package settings

import (
	"fmt"
	"os"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/space"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// space is what job_container.conf gives each job on this node for itself; nil
// where it gives nothing.
func (s *Settings) space() *plan.Space {
	if s.Cluster.Containers == nil {
		return nil
	}
	private := s.Cluster.Containers.Of(s.Node.Name, s.Host.Hostname)
	if private.Base == "" {
		return nil
	}
	return &plan.Space{
		Base:   private.Base,
		Auto:   private.Auto,
		Dirs:   private.Dirs,
		Shared: private.Shared,
		Init:   private.Init,
	}
}

// SpaceBase is where private folders are made; empty where there are none.
func (s *Settings) SpaceBase() string {
	if sp := s.space(); sp != nil {
		return sp.Base
	}
	return ""
}

// unable is why jobs cannot have the private folders that they are promised:
// such a node takes no job, since one without them would be worse. All that is
// wrong is said at once.
func (s *Settings) unable() string {
	sp := s.space()
	if sp == nil {
		return ""
	}
	var wrong []string
	if os.Geteuid() != 0 {
		wrong = append(
			wrong,
			fmt.Sprintf("the agent is not root (uid %d) and cannot mount anything", os.Geteuid()),
		)
	}
	for _, own := range []struct{ what, path string }{{"BasePath", sp.Base}, {"the agent's state folder", s.StateDir}, {"muster-shepherd", s.Shepherd}} {
		for _, dir := range sp.Dirs {
			if slurmconf.Within(own.path, dir) {
				wrong = append(
					wrong,
					fmt.Sprintf(
						"%s %s lies in %s, which is private to each job: put it elsewhere",
						own.what,
						own.path,
						dir,
					),
				)
			}
		}
	}
	for _, dir := range sp.Dirs {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			wrong = append(wrong, fmt.Sprintf("%s of Dirs is not a folder of this node", dir))
		}
	}
	if _, err := os.Stat(sp.Base); err == nil || !sp.Auto {
		if err := space.CheckBase(sp.Base); err != nil && os.Geteuid() == 0 {
			wrong = append(wrong, err.Error())
		}
	}
	if sp.Init != "" {
		if st, err := os.Stat(sp.Init); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			wrong = append(
				wrong,
				fmt.Sprintf("InitScript %s is not a program of this node", sp.Init),
			)
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return "JobContainerType: " + strings.Join(wrong, "; ")
}
