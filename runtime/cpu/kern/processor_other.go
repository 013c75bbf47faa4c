//go:build !linux || !(amd64 || arm64)

package kern

// processor is unknown.
func processor() int { return -1 }

func leaveProcessors(*processorSet) {}
