package cuda

import "fmt"

// dnnVersion is a version of cuDNN as its documentation writes it.
func dnnVersion(v int) string {
	if v >= 90000 {
		return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
}

// dnnLongHeads is the first version of cuDNN that is asked for attention with heads above headMost.
const dnnLongHeads = 90500

// dnnLimit is something that some versions of cuDNN do wrongly or not at all.
type dnnLimit struct {
	from, below int
	has         func(g *DnnGraph) bool
	why         string
}

var dnnLimits = []dnnLimit{
	{91000, 91002, (*DnnGraph).attends, "attention has known errors"},
	{0, dnnLongHeads, (*DnnGraph).longHeads, fmt.Sprintf("heads above %d elements need %s", headMost, dnnVersion(dnnLongHeads))},
}

// headMost is the largest head size that every version with attention supports.
const headMost = 128

// attends reports whether a graph is attention, or its gradient.
func (g *DnnGraph) attends() bool { return g.Nodes[0].Conv == nil }

func (g *DnnGraph) longHeads() bool { return g.attends() && g.Feeds[0].Dims[3] > headMost }

// Allows is nil, or the error that a version of cuDNN is not asked for a graph, which wraps
// ErrNotSupported and names the version.
func (g *DnnGraph) Allows(version int) error {
	for _, l := range dnnLimits {
		if l.from <= version && version < l.below && l.has(g) {
			return &Error{Lib: libDNN, Call: "cudnnBackendFinalize", Code: dnnNotSupported, Name: "not used", Text: fmt.Sprintf("cuDNN %s: %s", dnnVersion(version), l.why)}
		}
	}
	return nil
}

// dnnNotSupported is cuDNN's code for what no engine supports.
const dnnNotSupported = 3000

// faultOf says what is not used of a version of cuDNN because it is wrong, "" if there is nothing.
func faultOf(version int) string {
	for _, l := range dnnLimits {
		if l.from > 0 && l.from <= version && version < l.below {
			return fmt.Sprintf("cuDNN %s is not used for attention, which has known errors in it: install another version", dnnVersion(version))
		}
	}
	return ""
}
