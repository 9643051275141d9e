package slurmconf

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

func TestMPIConf(t *testing.T) {
	text := "# a site's\nPMIxCliTmpDirBase=/local/pmix/\npmixenv=PMIX_MCA_gds=hash;PMIX_MCA_pmix_verbose=1\nPMIxDebug=2\nPMIxTimeout=10\nPMIxShareServerTopo=no\n"
	mpi, problems := ReadMPI(fstest.MapFS{"mpi.conf": {Data: []byte(text)}}, "mpi.conf")
	if mpi.Folder != "/local/pmix" || !reflect.DeepEqual(mpi.Env, []string{"PMIX_MCA_gds=hash", "PMIX_MCA_pmix_verbose=1"}) {
		t.Errorf("%+v", mpi)
	}
	warned := problems.AtLeast(Warning)
	if len(warned) != 1 || !strings.Contains(warned[0].String(), "PMIxTimeout") {
		t.Errorf("problems %v", warned)
	}
	for line, want := range map[string]string{
		"PMIxCliTmpDirBase=local": "no absolute path",
		"PMIxEnv=A B=c":           "NAME=value",
		"PMIxColour=red":          "PMIxColour",
	} {
		_, problems := ReadMPI(fstest.MapFS{"mpi.conf": {Data: []byte(line + "\n")}}, "mpi.conf")
		if bad := problems.AtLeast(Error); len(bad) == 0 || !strings.Contains(bad[0].String(), want) {
			t.Errorf("%s: %v", line, problems)
		}
	}
}
