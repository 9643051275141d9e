// Package render turns the messages of the API into text, tables and JSON:
// jobs, nodes, associations and QOS, explanations, and the use of GPUs. A noun
// is written the same way by every command that shows it.
//
// Renderers are functions of messages and of the clock that they are given;
// they make no requests.
package render
