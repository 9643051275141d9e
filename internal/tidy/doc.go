// Package tidy holds the rules of the house as data and code, and its tests
// hold the repository to them: which room may import which, what the pure
// rooms must not touch, how large a file may grow, how errors are compared.
//
// Nothing imports it. A rule that is broken is mended in the code that breaks
// it; the tables here are changed only when the design changes, and each
// exception carries its reason (and fails the tests once it is not needed any
// more). A few rules yield to a mark in the source, written on the line above
// and always with a reason:
//
//	//muster:unordered why   a range over a map whose order cannot show
//	//muster:table why       a function longer than the limit: a table or an
//	                         exhaustive switch
//	//muster:global why      a package variable that is changed, or points to
//	                         something that is
//	//muster:float why       floating point in a room that decides, where it
//	                         is only shown
//	//muster:sleep why       a test or daemon that waits for real time to pass
//
// A mark without a reason is a breach too, and so is one that excuses nothing
// (but a table may be marked before it outgrows the limit).
package tidy
