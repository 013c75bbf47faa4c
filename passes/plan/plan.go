// Package plan is the fusion plan of a step: clusters of nodes that become one
// kernel each, the ports at which they read and write tensors, and the choice of
// a dtype for every tensor under which the clusters move the fewest bytes
// (Solver). It knows no op and no target: what a kernel takes at a port is the
// builder's to say, once.
//
// A tensor is stored in f32 or in the policy's 16-bit dtype ("low"), or because
// its source says so in the other one. Sizes are in bytes of the low form; the
// f32 form has twice as many.
package plan

// Choice decides a dtype: it is f32, low, or left to the Solver.
type Choice int32

const (
	Other    Choice = -2 // 16 bits that are not low
	AsStored Choice = -1 // of a port: whatever the tensor is stored in; of a tensor: its dtype is no choice of this kind
	F32      Choice = 0
	Low      Choice = 1
	// Free choices count from here.
	firstFree Choice = 2
)

// Free reports whether the Solver decides c.
func (c Choice) Free() bool { return c >= firstFree }

// TensorID indexes Plan.Tensors.
type TensorID int32

// Tensor is what has memory of its own; views are parts of it.
type Tensor struct {
	// Stored decides the dtype it is stored in, AsStored where that is not a float of
	// 16 or 32 bits: then sizes are in bytes as they are.
	Stored Choice
	Bytes  int64
	// CopyTimes is how often per step a copy in the other dtype is made where a cast makes one.
	CopyTimes int64
}

// Port is where a cluster reads or writes a tensor.
type Port struct {
	Tensor TensorID
	Write  bool
	// Part numbers the elements that are read; equal numbers are equal elements.
	Part  int32
	Bytes int64 // of the part

	// Takes is the operand requirement: the dtype that the kernel reads. F32 and
	// Low are fixed, as is Other, AsStored takes any, a free choice is that of another port.
	// A form that the tensor is not stored in must be made of it.
	Takes Choice
	// Narrowed says that the part was rounded to low on its way to the port: where
	// Takes is f32, it is the low form widened again, and not the tensor in f32.
	Narrowed bool
	// Saved says that the part is saved from forward for backward by this read.
	Saved bool

	// Register says that the cluster itself computes what it reads here: that moves nothing.
	Register bool

	// Moves, unless nil, is what the cluster moves for the port in each form, instead of its bytes once: a
	// cluster of several kernels reads a tensor several times, or makes a copy of its own.
	Moves *Moves

	// Second says of a write that the kernel stores each form that somebody reads:
	// a second one costs its bytes and no cast.
	Second bool
	// Rounded says of a write that no reader may widen what the kernel rounded:
	// where one reads f32, the tensor is f32.
	Rounded bool
	// Always says of a write that the tensor is stored whether or not a cluster reads it.
	Always bool
}

// Moves is bytes by the form of a tensor: f32, or 16 bits of either dtype.
type Moves struct{ F32, Low int64 }

// Cluster is the nodes that run as one kernel, or as the kernels of one node's
// expansion. Values that only they read are registers and no tensors.
type Cluster struct {
	Name  string
	Times int64 // runs per step
	Inner int64 // bytes per run that its kernels pass to each other
	// Outside marks the caller: its ports say how results are handed out, and move nothing.
	Outside bool
	Ports   []Port
}

// Plan is data: who builds it states every fact about kernels in it, the Solver
// prices it, and nothing that is decided afterwards changes its clusters.
type Plan struct {
	Tensors  []Tensor
	Clusters []Cluster
	// Widens are constraints: where A is f32, B is f32.
	Widens []Widen
	// Splits are costs of pairs of choices.
	Splits []Split
	// Joins are costs of kernels that become one under some choices.
	Joins []Join
	// SavedCost is the price of a byte that is saved for backward, relative to one that is moved.
	SavedCost float64

	choices int32
}

// Widen is the constraint that B is at least as wide as A.
type Widen struct{ A, B Choice }

// Split is bytes per step that are moved where A is f32 and B is low.
type Split struct {
	A, B  Choice
	Bytes int64
}

// Join is what two kernels of a cluster move beside what one would: bytes per step where Of is f32 (F32)
// or low (Low), unless all of Alike are decided as Of is.
type Join struct {
	Of       Choice
	Alike    []Choice
	F32, Low int64
}

// New is a plan without clusters.
func New() *Plan { return &Plan{choices: int32(firstFree)} }

// Choose is a new free choice.
func (p *Plan) Choose() Choice {
	p.choices++
	return Choice(p.choices - 1)
}

// Choices is the number of choices so far, F32 and Low among them.
func (p *Plan) Choices() int { return int(p.choices) }

// Tensor adds a tensor.
func (p *Plan) Tensor(t Tensor) TensorID {
	p.Tensors = append(p.Tensors, t)
	return TensorID(len(p.Tensors) - 1)
}

// Widen adds the constraint that b is at least as wide as a.
func (p *Plan) Widen(a, b Choice) { p.Widens = append(p.Widens, Widen{a, b}) }

// LowAlone says of each tensor whether some cluster reads it, and all that do read what was
// rounded to low: then nothing needs it in f32, whatever its choice is.
func (p *Plan) LowAlone(r *Result) []bool {
	alone, wide := make([]bool, len(p.Tensors)), make([]bool, len(p.Tensors))
	for k := range p.Clusters {
		for i := range p.Clusters[k].Ports {
			q := &p.Clusters[k].Ports[i]
			takes := q.Takes
			if takes == AsStored {
				takes = p.Tensors[q.Tensor].Stored
			}
			switch {
			case q.Write:
				wide[q.Tensor] = wide[q.Tensor] || q.Always
			case q.Narrowed || takes >= 0 && r.Low(takes):
				alone[q.Tensor] = true
			default:
				wide[q.Tensor] = true
			}
		}
	}
	for id, w := range wide {
		alone[id] = alone[id] && !w
	}
	return alone
}
