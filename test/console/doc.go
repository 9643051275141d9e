// Package console tests the web console in a real Chromium, on a lab of the
// programs in bin. `make test-console` runs it; other runs of the tests skip it.
//
// MUSTER_SCREENSHOTS=FOLDER writes pictures of the pages there, light and dark;
// MUSTER_CONSOLE_LAB=FOLDER takes them of a lab that is up already, which may
// have been under load for longer than a test takes.
package console
