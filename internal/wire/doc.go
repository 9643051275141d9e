// Package wire converts between the API's messages and the nouns of spec and
// state, one file per noun. It knows no service and no connection.
package wire
