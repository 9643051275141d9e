// Package event is the vocabulary of the ledger: every change of the cluster
// is one of these events, in the past tense, and nothing else changes state.
//
// # Nouns
//
// A job is one record with a JobUID. An array is one record until a task of
// it starts or is changed alone; then ArrayTaskSplit gives that task a record
// of its own (the last task keeps the array's record). An attempt is one run
// of a job: attempts count from 1, each JobStarted opens one, and exactly one
// of JobEnded or JobRequeued closes it. A node is known by its name; its boot
// id tells two lives of it apart.
//
// # The life of a job
//
//	                 JobHeld / JobReleased, JobUpdated, ReasonsChanged, JobEligible
//	                                  |
//	JobSubmitted ----------------> pending --------------------------- JobEnded (cancelled, deadline)
//	                                |    ^
//	                     JobStarted |    | JobRequeued (all nodes done)
//	                                v    |
//	                             running -+- JobEndRequested (cancel, time limit, preemption, requeue, node lost)
//	                                |
//	                                | JobEnded: the verdict of the attempt
//	                                v
//	                            completing -- JobNodeDone, once for each allocated node
//	                                |
//	                                v
//	                             finished -- JobPurged (MinJobAge later: the controller forgets, accounting does not)
//
// Rules, each checked by the fold or by an invariant of package state:
//
//   - JobStarted carries the whole allocation: nodes, CPU ids, memory, device
//     UUIDs. It is never edited; JobNodeDone gives back one node's part.
//   - Where the site has a PrologSlurmctld nothing of an attempt is started
//     anywhere before JobPrepared. Where it has an EpilogSlurmctld the event
//     that closes an attempt says that one is due, JobEpilogOver that it ran.
//   - JobEndRequested states why an attempt must end; the verdict follows that
//     reason, however the processes died (a job over its time limit is
//     TIMEOUT even if it exited 0).
//   - JobRequeued is written only when every node of the attempt is done, so
//     two attempts of one job never hold resources together.
//   - A terminal state is never left; ids are never reused.
//
// # The life of a node
//
// A node is configured (ConfigAdopted), registered (NodeRegistered, with its
// inventory and boot id), may become silent (NodeLost) and answer again
// (NodeReturned). Independently an administrator or the controller sets it
// down, draining or back in service (NodeStateSet). A silent node is not a
// dead one: what ran there is given up (JobNodeDone with Unfenced), and started
// again only after RunFenced, which a new boot id, the node's own report, an
// operator or the fence that the site configured brings about. FenceTried tells
// that the site's fence program has failed.
//
// Partitions are the configuration's; PartitionPut changes one while the cluster
// runs, until a configuration is adopted that does not keep the change, and so does
// NodeChanged with a node's weight and features; what an operator wrote beside it
// stays. PartitionAdded and PartitionGone are the life of one that no file names.
//
// # Jobs of pods
//
// A job whose spec names pods of Kubernetes lives like any other. No agent starts or
// ends it: its pods are bound after JobStarted is durable and deleted after
// JobEndRequested, and its nodes are given back (JobEnded, JobNodeDone) only when
// Kubernetes has said that the pods are over, which JobPodsOver notes. The silence of a
// node, its reboot and NodeLost change nothing of it. It has one attempt.
//
// # Other schedulers
//
// What another scheduler has on a node is a foreign hold: ForeignHoldTaken before
// its program may start there, ForeignHoldReleased once it is gone. A hold has no
// end that the ledger knows. It uses what it takes like a job, and the life of the
// node does not end it.
//
// # Epochs
//
// Every controller that begins to lead first writes EpochBegan with a random
// number. Sequence numbers and job numbers come again when a ledger is restored
// from an older copy; the epoch does not. Whoever remembers a position (epoch
// and sequence number) can therefore tell a ledger that has lost history, which
// HistoryLost then records.
//
// # Encoding
//
// One entry of the log is a batch of envelopes: all of them happen or none.
// The encoding is CBOR with integer keys (see Encode). A field, once
// released, keeps its key and meaning; new fields are added with new keys and
// new events with new kinds, and both are written only after
// ClusterVersionRaised, so that a controller of the older release can still
// be one of the cluster. A reader that meets a kind or a field it does not
// know refuses the entry with ErrNewer: nothing is ever skipped.
package event
