// Package conffile reads muster.yaml, and any other YAML file of ours, strictly.
//
// Reading has three steps: Parse (known keys and well-formed values only),
// Fill (what was left empty, from what was given) and Validate (what must hold
// between values). Everything that is wrong is reported at once, each problem
// with its file, line and path, so that an administrator mends a file in one
// go. An unknown key is an error that names the key that was probably meant.
//
// The comments on Config's fields are the reference; package confdoc turns
// them into docs/muster.yaml.md and into the annotated file that Annotated
// returns.
package conffile
