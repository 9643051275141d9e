// Package deploy holds what is shipped beside the programs. Its tests parse
// the configurations with the tools that will read them.
package deploy
