package durable

import "fmt"

// CorruptError names the damaged place of a store and what to do about it. errors.Is holds for the
// sentinel of its store.
type CorruptError struct {
	Store  error // the store's sentinel: what is damaged
	File   string
	Offset int64
	What   string
	Cure   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s; %s", e.Store, e.File, e.Offset, e.What, e.Cure)
}

// Is makes errors.Is true for the store's sentinel.
func (e *CorruptError) Is(target error) bool { return target == e.Store }

// VersionError says which file or record a newer release wrote. errors.Is holds for the sentinel of
// its store.
type VersionError struct {
	Store error // the store's sentinel: what a newer release wrote
	Where string
	Found int
	Known int
	Cure  string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf(
		"%v: %s has format %d, this release reads up to %d; %s",
		e.Store,
		e.Where,
		e.Found,
		e.Known,
		e.Cure,
	)
}

// Is makes errors.Is true for the store's sentinel.
func (e *VersionError) Is(target error) bool { return target == e.Store }
