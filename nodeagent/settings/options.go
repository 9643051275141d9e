package settings

import (
	"slices"
)

// HidesJobs tells whether the metrics leave out jobs and their users: PrivateData
// keeps them from other users, and everybody may read the metrics. Where a site
// asks for a credential there, it decides by that who may.
func (s *Settings) HidesJobs() bool {
	if s.Config.TLS.AgentWebConfig != "" || s.Config.TLS.WebTokenFile != "" {
		return false
	}
	return slices.ContainsFunc(s.Cluster.Config.Private, func(word string) bool {
		return word == "jobs" || word == "usage" || word == "users"
	})
}

// Options are the command line.
type Options struct {
	ConfigFile, Conf, Node, Controller string
	TokenFile, Metrics, StateDir       string
	Shepherd, Accounting               string
	ConfigGiven                        bool
	Dynamic                            bool     // -Z: the node is in no slurm.conf
	Login                              bool     // this is a login host
	Enrol                              bool     // get a certificate and end
	Sent                               *sent    // the configuration, when it is the controller's
	About                              string   // --describe
	ShepherdEnv                        []string // tests only: the environment of a started shepherd
}
