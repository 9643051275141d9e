// Package jobcomp writes one line for each finished job to the file that
// JobCompLoc names, also for jobs whose line a crash prevented.
package jobcomp
