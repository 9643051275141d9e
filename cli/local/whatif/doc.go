// Package whatif replays a site's history under other configurations: muster
// whatif, which compares one that is named, and muster tune, which looks for a
// better one. It is linked into musterd, which muster runs for both.
package whatif
