package slurmconf

import "io/fs"

// DBD is a slurmdbd.conf. Nothing of it configures Muster, whose accounting
// has its own section in muster.yaml; it is read so that every line gets an
// answer and a password does not lie open.
type DBD struct {
	Name     string
	Settings []Setting // in order
	// HasSecret: the file holds the database's password.
	HasSecret bool

	secretAt Setting
}

// everyone is the permission bits of users who are neither owner nor group.
const everyone fs.FileMode = 0o006

// dbdKeys are the keys of slurmdbd.conf.
//
//muster:table one row for each key
func dbdKeys() []key[DBD] {
	const (
		storage = "replaced by the ClickHouse DSN, accounting.dsn in muster.yaml"
		purge   = "what is kept how long is in muster.yaml"
		archive = "nothing is archived to files; ClickHouse keeps or drops whole months"
	)
	secret := func(dbd *DBD, v value) {
		dbd.HasSecret, dbd.secretAt = true, v.Setting
		v.noteValue("not used: %s", storage)
	}
	return []key[DBD]{
		{"AllResourcesAbsolute", unsupported, "no|0|false", "licences belong to one cluster", nil},
		{"AllowNoDefAcct", unsupported, "no|0|false", "every user has a default account", nil},
		{"ArchiveDir", meaningless, "", archive, nil},
		{"ArchiveEvents", unsupported, "no|0|false", archive, nil},
		{"ArchiveJobs", unsupported, "no|0|false", archive, nil},
		{"ArchiveResvs", unsupported, "no|0|false", archive, nil},
		{"ArchiveScript", unsupported, "none|(null)", archive, nil},
		{"ArchiveSteps", unsupported, "no|0|false", archive, nil},
		{"ArchiveSuspend", unsupported, "no|0|false", archive, nil},
		{"ArchiveTXN", unsupported, "no|0|false", archive, nil},
		{"ArchiveUsage", unsupported, "no|0|false", archive, nil},
		{"AuthAltParameters", unsupported, "", "the controller signs tokens with its own key; REST clients get them from `scontrol token`", nil},
		{"AuthAltTypes", unsupported, "", "REST clients bring a token (JWT) without this key", nil},
		{"AuthInfo", meaningless, "", whyMTLS, nil},
		{"AuthType", implemented, "", "", func(_ *DBD, v value) { setAuthType(nil, v) }},
		{"CommitDelay", meaningless, "", "the ledger is durable before accounting sees it", nil},
		{"CommunicationParameters", meaningless, "", whyListen, nil},
		{"DbdAddr", meaningless, "", whyListen, nil},
		{"DbdBackupHost", meaningless, "", "one accounting service follows the ledger; it needs no backup host", nil},
		{"DbdHost", meaningless, "", whyListen, nil},
		{"DbdPort", meaningless, "", whyListen, nil},
		{"DebugFlags", meaningless, "", whyLogs, nil},
		{"DebugLevel", meaningless, "", whyLogs, nil},
		{"DebugLevelSyslog", meaningless, "", whyLogs, nil},
		{"DefaultQOS", unsupported, "", "new accounts have the QOS normal", nil},
		{"DisableCoordDBD", refused, "no|0|false", "coordinators could change their accounts", nil},
		{"DisableArchiveCommands", meaningless, "", archive, nil},
		{"HashPlugin", meaningless, "", whyMTLS, nil},
		{"KeepAliveTime", meaningless, "", whyStreams, nil},
		{"LogFile", meaningless, "", whyLogs, nil},
		{"LogTimeFormat", meaningless, "", whyLogs, nil},
		{"MaxPurgeLimit", meaningless, "", purge, nil},
		{"MaxQueryTimeRange", unsupported, "0|00:00:00|INFINITE|UNLIMITED", "queries may span any time", nil},
		{"MessageTimeout", meaningless, "", whyStreams, nil},
		{"Parameters", unsupported, "", "accounting has no parameters", nil},
		{"PidFile", meaningless, "", whyPid, nil},
		{"PluginDir", meaningless, "", "there are no plugins to load", nil},
		{"PrivateData", refused, "none", "users would see each other's jobs and usage", nil},
		{"PurgeEventAfter", unsupported, "NONE", purge, nil},
		{"PurgeJobAfter", unsupported, "NONE", purge, nil},
		{"PurgeJobEnvAfter", unsupported, "NONE", purge, nil},
		{"PurgeJobScriptAfter", unsupported, "NONE", purge, nil},
		{"PurgeResvAfter", unsupported, "NONE", purge, nil},
		{"PurgeStepAfter", unsupported, "NONE", purge, nil},
		{"PurgeSuspendAfter", unsupported, "NONE", purge, nil},
		{"PurgeTXNAfter", unsupported, "NONE", purge, nil},
		{"PurgeUsageAfter", unsupported, "NONE", purge, nil},
		{"SlurmUser", meaningless, "", "accounting runs as the user that starts it", nil},
		{"StorageBackupHost", meaningless, "", storage, nil},
		{"StorageHost", meaningless, "", storage, nil},
		{"StorageLoc", meaningless, "", storage, nil},
		{"StorageParameters", meaningless, "", storage, nil},
		{"StoragePass", implemented, "", "", secret},
		{"StoragePassScript", meaningless, "", storage, nil},
		{"StoragePort", meaningless, "", storage, nil},
		{"StorageType", meaningless, "", storage, nil},
		{"StorageUser", meaningless, "", storage, nil},
		{"TCPTimeout", meaningless, "", whyStreams, nil},
		{"TLSParameters", meaningless, "", "connections between machines are always mTLS", nil},
		{"TLSType", meaningless, "", "connections between machines are always mTLS", nil},
		{"TrackSlurmctldDown", unsupported, "no|0|false", "time without a controller is not charged to the cluster", nil},
		{"TrackWCKey", unsupported, "no|0|false", "wckeys are not tracked", nil},
	}
}

// ReadDBD reads slurmdbd.conf. It refuses a file with the database's password
// that everyone may read, going by the mode in its fs.FileInfo.
func ReadDBD(fsys fs.FS, name string) (*DBD, Problems) {
	var problems Problems
	dbd := &DBD{Name: name}
	recs, modes := lexFiles(fsys, name, &problems)
	dbd.Settings = readFlat(dbd, newTable("slurmdbd.conf", dbdKeys()), recs, &problems)
	for _, mode := range modes {
		if mode.mode&everyone != 0 && dbd.HasSecret && mode.name == dbd.secretAt.File {
			problems.addProblem(
				dbd.secretAt,
				Error,
				"everyone may read or write this file (mode %04o) and so the password; chmod 600 it, or take the line out",
				mode.mode.Perm(),
			)
		}
	}
	return dbd, problems.sortedByLine()
}
