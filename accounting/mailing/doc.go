// Package mailing sends the reports of reports.mail when they are due, each
// once, also across restarts and when several processes store accounting.
package mailing
