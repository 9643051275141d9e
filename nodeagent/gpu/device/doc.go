// Package device is the vocabulary of GPUs: what a device is, what it says at
// one instant, who uses it and what went wrong with it.
//
// The package is pure data and arithmetic: no library, no clock, no lock. The
// providers of package gpu fill these types, telemetry prints them, the agent
// reports them, and none of them has to know another.
//
// Readings are integers in a fixed point that belongs to the field, never
// floating point, so that sums and comparisons are exact and two machines give
// the same bytes: power is in milliwatts, ratios are in millionths,
// temperatures in degrees Celsius (see Fields). A field that a provider cannot
// read is absent from a Reading; absent is not zero.
package device
