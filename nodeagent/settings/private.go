package settings

import (
	"fmt"
	"os"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/space"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// privateSpace is the private folders that job_container.conf gives each job on this node; nil if none.
func (s *Settings) privateSpace() *plan.Space {
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

// SpaceBase is the folder in which the private folders are made; empty if jobs have none.
func (s *Settings) SpaceBase() string {
	if private := s.privateSpace(); private != nil {
		return private.Base
	}
	return ""
}

// checkSpace tells why jobs cannot have their private folders here, naming every fault at once;
// empty if they can. A node with a fault takes no job, because a job without them would show its
// files to other users.
func (s *Settings) checkSpace() string {
	private := s.privateSpace()
	if private == nil {
		return ""
	}
	var wrong []string
	if os.Geteuid() != 0 {
		wrong = append(
			wrong,
			fmt.Sprintf("the agent is not root (uid %d) and cannot mount anything", os.Geteuid()),
		)
	}
	// A job does not see the node's own content of a private folder, so nothing that it needs may
	// lie there.
	for _, own := range []struct{ what, path string }{
		{"BasePath", private.Base},
		{"the agent's state folder", s.StateDir},
		{"muster-shepherd", s.Shepherd},
	} {
		for _, dir := range private.Dirs {
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
	for _, dir := range private.Dirs {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			wrong = append(wrong, fmt.Sprintf("%s of Dirs is not a folder of this node", dir))
		}
	}
	if _, err := os.Stat(private.Base); err == nil || !private.Auto {
		if err := space.CheckBase(private.Base); err != nil && os.Geteuid() == 0 {
			wrong = append(wrong, err.Error())
		}
	}
	if private.Init != "" && !isProgram(private.Init) {
		wrong = append(
			wrong,
			fmt.Sprintf("InitScript %s is not a program of this node", private.Init),
		)
	}
	if len(wrong) == 0 {
		return ""
	}
	return "JobContainerType: " + strings.Join(wrong, "; ")
}

// isProgram tells whether a path is a file that somebody may execute.
func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir() && st.Mode()&0o111 != 0
}
