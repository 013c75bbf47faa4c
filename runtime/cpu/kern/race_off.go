//go:build !race

package kern

// RaceEnabled reports whether the race detector is active in this process.
const RaceEnabled = false
