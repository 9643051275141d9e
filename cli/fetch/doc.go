// Package fetch holds the requests that more than one command makes: jobs as
// a stream, reservations, and answers of accounting that are not older than the
// question.
package fetch
