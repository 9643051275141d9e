// Package clients runs the command lines of programs that sit on top of Slurm's
// commands against a real cluster, through the whole life of their jobs, and reads
// every answer as the program reads it. The table of clients is also docs/clients.md.
package clients
