//go:build race

package kern

const RaceEnabled = true
