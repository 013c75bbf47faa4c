// Package plan is the fusion plan of a step: clusters of nodes that become one kernel each, the
// ports at which they read and write tensors, and a dtype for every tensor, chosen such that the
// clusters move the fewest bytes (Solver). It knows no op and no target: the caller states once
// what each kernel reads and writes at its ports.
//
// A tensor is stored in f32, in the policy's 16-bit dtype ("low"), or, if the source says so, in
// the other 16-bit dtype. Sizes are bytes of the low form; the f32 form takes twice as many.
package plan

// Choice decides a dtype: f32, low, or the Solver's choice of the two.
type Choice int32

const (
	Other    Choice = -2 // 16 bits of the dtype that is not low
	AsStored Choice = -1 // of a port: any stored dtype; of a tensor: its dtype is fixed
	F32      Choice = 0
	Low      Choice = 1
	// Free choices are numbered from here.
	firstFree Choice = 2
)

// Free reports whether the Solver decides c.
func (c Choice) Free() bool { return c >= firstFree }

// TensorID indexes Plan.Tensors.
type TensorID int32

// Tensor has its own memory. Views are parts of tensors.
type Tensor struct {
	// Stored decides the dtype in which it is stored. AsStored means that it is not a float of 16
	// or 32 bits; then sizes are bytes of its dtype.
	Stored Choice
	Bytes  int64
	// CopyTimes is how often per step a cast makes a copy in the other dtype, if there is one.
	CopyTimes int64
}

// Port is where a cluster reads or writes a tensor.
type Port struct {
	Tensor TensorID
	// Part numbers the elements that are read. Equal numbers mean equal elements.
	Part  int32
	Bytes int64 // of the part
	// Moves, if not nil, replaces the part's bytes: what the cluster moves for the port in each
	// form. A cluster of several kernels may read a tensor several times, or copy it.
	Moves *Moves

	// Takes is the dtype that the kernel requires. F32, Low and Other are fixed, AsStored accepts
	// any dtype, and a free choice is that of another port. If the tensor is stored in another
	// dtype, it must be cast.
	Takes Choice
	Write bool
	// Narrowed says that the part was rounded to low before the port. If Takes is f32, the port
	// reads the low form widened again, not the tensor in f32.
	Narrowed bool
	// Saved says that this read keeps the part from forward for backward.
	Saved bool
	// Register says that the cluster itself computes the value, so that reading it moves no bytes.
	Register bool
	// Second says of a write that the kernel stores each form that is read. A second form costs its
	// bytes and no cast.
	Second bool
	// Rounded says of a write that no reader may widen the rounded result: if a reader requires
	// f32, the tensor is stored in f32.
	Rounded bool
	// Always says of a write that the tensor is stored even if no cluster reads it.
	Always bool
}

// Moves is bytes by form of a tensor: f32, or either 16-bit dtype.
type Moves struct{ F32, Low int64 }

// Cluster is the nodes that run as one kernel, or as the kernels of one node's expansion. Values
// that only they read are registers, not tensors.
type Cluster struct {
	Name  string
	Times int64 // runs per step
	Inner int64 // bytes per run that its kernels pass to each other
	// Outside marks the caller's cluster: its ports state how results are returned, and move no
	// bytes.
	Outside bool
	Ports   []Port
}

// Plan is data. Its builder states all facts about kernels in it, and the Solver prices it. No
// later decision changes its clusters.
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

	// Together runs functions that do not depend on each other: at the same time, or one after the
	// other.
	Together func(...func())

	choices int32
}

// Widen is the constraint that B is at least as wide as A.
type Widen struct{ A, B Choice }

// Split is the bytes per step that move if A is f32 and B is low.
type Split struct {
	A, B  Choice
	Bytes int64
}

// Join is what two kernels of a cluster move more than one kernel would, in bytes per step: F32 if
// Of is f32, Low if it is low. It costs nothing if all of Alike are decided as Of is.
type Join struct {
	Of       Choice
	Alike    []Choice
	F32, Low int64
}

// New is a plan without clusters.
func New() *Plan { return &Plan{choices: int32(firstFree), Together: inTurn} }

func inTurn(fs ...func()) {
	for _, f := range fs {
		f()
	}
}

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

// LowAlone reports, for each tensor, whether a cluster reads it and all that do read values rounded
// to low. Then no cluster needs it in f32, whatever its choice is.
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
