package slurmconf

import "io/fs"

// oci is an oci.conf. Nothing of it is kept: the nodes run OCI bundles without a
// runtime.
type oci struct{}

// ociKeys are the keys of oci.conf.
//
//muster:table one row for each key
func ociKeys() []key[oci] {
	const (
		whyRuntime = "the nodes run bundles themselves, with the files, mounts and variables of config.json, and no runtime is started"
		whyQuiet   = "there is no runtime whose doings could be written down"
		whySpool   = "nothing of a container is on a disk"
	)
	return []key[oci]{
		{"ContainerPath", meaningless, "", whySpool, nil},
		{"CreateEnvFile", unsupported, "null|newline|disabled|false|no", "tasks have their variables in the environment", nil},
		{"DebugFlags", meaningless, "", whyQuiet, nil},
		{"DisableCleanup", meaningless, "", whySpool, nil},
		{"DisableHooks", unsupported, "", "a bundle with hooks is refused; take them out of config.json", nil},
		{"EnvExclude", unsupported, "", "all variables of the job are in the container, but for those that config.json sets", nil},
		{"FileDebug", meaningless, "", whyQuiet, nil},
		{"IgnoreFileConfigJson", unsupported, "no|false|0", "config.json says where the files are", nil},
		{"MountSpoolDir", meaningless, "", whySpool, nil},
		{"RunTimeCreate", unsupported, "", whyRuntime, nil},
		{"RunTimeDelete", unsupported, "", whyRuntime, nil},
		{"RunTimeEnvExclude", unsupported, "", whyRuntime, nil},
		{"RunTimeKill", unsupported, "", whyRuntime, nil},
		{"RunTimeQuery", unsupported, "", whyRuntime, nil},
		{"RunTimeRun", unsupported, "", whyRuntime, nil},
		{"RunTimeStart", unsupported, "", whyRuntime, nil},
		{"SrunArgs", unsupported, "", "scrun is not part of Muster", nil},
		{"SrunPath", unsupported, "", "scrun is not part of Muster", nil},
		{"StdIODebug", meaningless, "", whyQuiet, nil},
		{"SyslogDebug", meaningless, "", whyQuiet, nil},
	}
}

// ReadOCI reads oci.conf for what a site asks for and does not get.
func ReadOCI(fsys fs.FS, name string) Problems {
	var problems Problems
	t := newTable("a line of oci.conf", ociKeys())
	recs, _ := lexFiles(fsys, name, &problems)
	for _, record := range recs {
		applyAll(&oci{}, t, record, &problems)
	}
	return problems.sortedByLine()
}
