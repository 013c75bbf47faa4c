//go:build !race

package kern

// RaceEnabled says that the race detector watches this process.
const RaceEnabled = false
