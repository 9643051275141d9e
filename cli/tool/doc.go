// Package tool is what every command is made of: the row of the table that
// describes it (Command), one run of it (Call), what it can see of the world
// (Env), the connection to the controller (Conn), the help text, and the
// readers of words that several commands take.
//
// It knows no command. The table of all commands is in package cli, above the
// rooms that hold them.
package tool
