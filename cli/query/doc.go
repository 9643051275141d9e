// Package query holds the commands that show and control the present: squeue,
// sinfo, sprio, sshare, sdiag, scontrol, scancel, and Muster's why, gpu, hosts
// and token. One file, or one group of files with a common prefix, is one
// command; what two of them share is in a lower room.
package query
