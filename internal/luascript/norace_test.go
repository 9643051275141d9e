//go:build !race

package luascript

const underRaceDetector = false
