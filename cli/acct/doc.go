// Package acct holds the commands about the past and about accounts: sacct,
// sacctmgr, sreport, sstat, seff, and Muster's kpi, report, sql and accounting.
//
// Rows of finished jobs are read by sacct, seff and sstat alike (rows.go).
package acct
