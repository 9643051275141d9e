// Package tune looks for settings of the scheduler that would have served a
// site better than the ones in force, and says so only with evidence.
//
// The history is split by time. Settings are compared on the first part alone,
// which replays nothing of the second. The best of them, one, is then replayed
// over the whole history beside the settings in force, and judged by the jobs
// of the second part. What is reported comes from there: a setting that is
// chosen among ten looks better than it is on the jobs it was chosen by.
//
// Congestion makes neighbouring jobs wait together, so jobs are no independent
// samples. The intervals come from a bootstrap of blocks of days (Judge), with
// a seed that is an argument: the same history gives the same report.
package tune
