//go:build !linux || !(amd64 || arm64)

package kern

// processor is unknown.
func processor() int { return -1 }

func leaveProcessors(*Processors) {}

// Affinity is not known.
func Affinity() (s Processors, ok bool) { return s, false }

// confine does nothing: the system has no such request.
func confine(*Processors) (was Processors, ok bool) { return was, false }

func release(*Processors) {}
