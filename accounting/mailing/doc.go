// Package mailing sends the reports of reports.mail when they are due, each
// once, also across restarts and when several processes store accounting. JobMails
// sends what jobs ask for with --mail-type, from the controller that leads.
package mailing
