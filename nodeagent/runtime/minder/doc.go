// Package minder is the process that minds a step's tasks on one node: the
// shepherd's program with another verb, run as the job's user in the step's
// control group, as the leader of the step's run.
//
// It starts the tasks, holds their pipes and terminals, waits for them, and
// serves what happens as numbered frames on a socket that the shepherd has
// opened for it. It knows neither agent nor controller, so that either may die
// and come back: frames are kept until they are acknowledged, and input is
// taken by its offset, so that nothing is lost or doubled. About a MiB of
// output is kept; then tasks that write wait.
//
// When the last task has ended it kills what they left behind, writes how they
// ended where the shepherd reads it, sends the last frame, and waits for
// somebody to have received it: as long as a client is there, and a while
// longer for one that comes back.
//
// A process of the user's can kill its own minder. That ends the step with
// signal 9 and harms nobody else: the minder holds no right that the user has
// not. In the first milliseconds of its life, before it catches signals, a
// SIGTERM, SIGINT, SIGHUP or SIGQUIT to the whole step ends it too, and with it
// the step, whose tasks have hardly begun.
package minder
