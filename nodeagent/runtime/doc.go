// Package runtime is the agent's side of the job runtime: it starts the
// node's shepherd, speaks to it, and comes back to it after either has died.
//
// Client is one connection. Keeper is what an agent uses: it keeps a shepherd
// of the agent's own release running, reconnects, listens to the shepherds of
// older releases until they are drained, and gives all their news to one
// function. Exits repeat until they are acknowledged, so a crash between
// hearing and recording loses nothing; whoever listens must bear repeats.
package runtime
