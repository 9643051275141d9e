package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// EngineVersion is the version of the npm package that the engine library comes from; deploy/engine/checksums pins
// its bytes.
const EngineVersion = "26.7.3-stable.1"

// ErrNoLibrary is returned when no engine library was found.
var ErrNoLibrary = errors.New(
	"the ClickHouse engine library is not here: install the package muster-engine or run " +
		"deploy/engine/fetch.sh, or set MUSTER_LIBCHDB to a libchdb.so, or use a ClickHouse " +
		"server by its DSN",
)

// FindLibrary returns the path of the engine library: MUSTER_LIBCHDB, the cache that deploy/engine/fetch.sh fills, or
// where packages put it. The error is ErrNoLibrary when it is in none of them.
func FindLibrary() (string, error) {
	if path := os.Getenv("MUSTER_LIBCHDB"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("MUSTER_LIBCHDB: %w", err)
		}
		return filepath.Abs(path)
	}
	var places []string
	if cache := cacheDir(); cache != "" {
		places = append(places, filepath.Join(cache, "engine", EngineVersion, "libchdb.so"))
	}
	places = append(places, "/usr/local/lib/muster/libchdb.so", "/usr/lib/muster/libchdb.so")
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", ErrNoLibrary
}

// cacheDir is where fetch.sh keeps caches; "" when the environment names no place.
func cacheDir() string {
	if d := os.Getenv("MUSTER_CACHE"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "muster")
	}
	if d := os.Getenv("HOME"); d != "" {
		return filepath.Join(d, ".cache", "muster")
	}
	return ""
}
