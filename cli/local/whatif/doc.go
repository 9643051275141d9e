// Package whatif replays a site's history under another configuration: muster
// whatif. It is linked into musterd, which muster runs for it.
package whatif
