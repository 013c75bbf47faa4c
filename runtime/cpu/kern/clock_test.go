//go:build !linux

package kern

import "time"

var started = time.Now()

// clock is the time since the start.
func clock() time.Duration { return time.Since(started) }
