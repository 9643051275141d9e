package slurmconf

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestSiteScripts: the scripts that slurm.conf asks for are part of the configuration, and one
// that is not there is an error that names it.
func TestSiteScripts(t *testing.T) {
	files := fstest.MapFS{
		"etc/slurm.conf":     {Data: []byte("ClusterName=c\nSlurmctldHost=h\nJobSubmitPlugins=job_submit/lua\nCliFilterPlugins=lua\nNodeName=n1\nPartitionName=p Nodes=n1\n")},
		"etc/job_submit.lua": {Data: []byte("-- rules")},
	}
	_, problems := ReadCluster(files, "etc/slurm.conf")
	if err := problems.Err(); err == nil || !strings.Contains(err.Error(), "CliFilterPlugins: /etc/cli_filter.lua does not exist") {
		t.Errorf("a filter that is not there: %v", err)
	}
	files["etc/cli_filter.lua"] = &fstest.MapFile{Data: []byte("-- advice")}
	cluster, problems := ReadCluster(files, "etc/slurm.conf")
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	submit, filter := cluster.Config.JobSubmit, cluster.Config.CliFilter
	if submit == nil || submit.Path != "/etc/job_submit.lua" || submit.Text != "-- rules" || filter == nil || filter.Text != "-- advice" {
		t.Errorf("the scripts are %+v and %+v", submit, filter)
	}
	files["etc/job_submit.lua"].Data = make([]byte, maxSiteScript+1)
	if _, problems := ReadCluster(files, "etc/slurm.conf"); problems.Err() == nil {
		t.Error("a script of any size is taken")
	}
	files["etc/slurm.conf"].Data = []byte("ClusterName=c\nSlurmctldHost=h\nNodeName=n1\nPartitionName=p Nodes=n1\n")
	if cluster, _ := ReadCluster(files, "etc/slurm.conf"); cluster.Config.JobSubmit != nil {
		t.Error("a script that nobody asked for runs")
	}
}
