// Package pmix is the protocol between the process that minds a step and
// muster-pmix, the program that serves PMIx to the step's tasks on a node
// (cmd/muster-pmix). It turns the messages of muster-pmix into frames for the
// step's client, which forwards them to the other nodes.
//
// A message is its length and its kind, then a body of numbers of 32 bits and
// bytes; numbers are little-endian.
//
//	Setup      minder     lines NAME=VALUE
//	Variables  muster-pmix  rank, then NAME=VALUE with a zero byte after each
//	Ready      muster-pmix
//	Fence      muster-pmix  number, count and ranks of who takes part (0: all), data
//	Passed     minder     number, status, data of all
//	Ask        both       number, rank
//	Answer     both       number, status, data
//	Abort      muster-pmix  rank, status, text
//	Failed     muster-pmix  text
//
// A number identifies a question until it is answered. Questions about tasks of other
// nodes travel under the asking node's number; a question that comes from there
// has a number of the Broker's own on its way to muster-pmix.
package pmix
