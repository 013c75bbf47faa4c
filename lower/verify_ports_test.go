package lower

import (
	"fmt"
	"slices"
	"testing"

	"ampc/ir"
)

// portPrograms have every kind of step: products with epilogues, a norm with a sum and a ReLU, a pool that
// its gradient searches again, attention that reads parts of one tensor, clusters with two stored forms.
var portPrograms = []string{twoParts, `graph @norm {
  input %x : f32[2,3,4,4]
  input %r : f32[2,3,4,4]
  param %w : f32[3,3,3,3]
  param %s : f32[3]
  param %b : f32[3]
forward:
  %c = conv %x, %w {pads=[1,1,1,1]} : f32[2,3,4,4]
  %n, %mean, %rstd = instance_norm %c, %s, %b {cluster=1} : f32[2,3,4,4], f32[2,3], f32[2,3]
  %sum = add %n, %r {cluster=1} : f32[2,3,4,4]
  %y = relu %sum {cluster=1} : f32[2,3,4,4]
  %p, %at = max_pool %y {kernel=[2,2] strides=[2,2]} : f32[2,3,2,2], i32[2,3,2,2]
backward:
  %d = max_pool_grad %p, %at {size=[4,4]} : f32[2,3,4,4]
  return %p, %d
}
`, viewedGradient, `graph @product {
  input %m : f16[32,8]
forward:
  %z = exp %m {cluster=1 out=f32} : f32[32,8]
  %zl = cast %z {to=f16 cluster=1} : f16[32,8]
  %g = matmul %zl, %m {tb cluster=2 out=f32} : f32[32,32]
  %h = gelu %g {cluster=2 out=f16} : f16[32,32]
  return %z, %h, %g
}
`}

// A step that departs from the ports of its cluster is refused: from the tensors, the parts of them and the
// dtypes that it reads and writes, and from which cluster it runs.
func TestStepsKeepToTheirPorts(t *testing.T) {
	count := map[string]int{}
	for k, src := range portPrograms {
		whole := lowered(t, src)
		if err := whole.verifyPorts(); err != nil {
			t.Fatal(err)
		}
		for part := range NumParts {
			for at := range whole.Parts[part] {
				for what, change := range departures(whole, part, at) {
					p := lowered(t, src)
					if !change(p, &p.Parts[part][at]) {
						continue
					}
					count[what]++
					if err := p.verifyPorts(); err == nil {
						s := &p.Parts[part][at]
						t.Errorf("graph %d, %s step %d (%s %s): not noticed: %s", k, part, at, s.Kind, s.Node.Name, what)
					}
				}
			}
		}
	}
	for what := range departures(nil, 0, 0) {
		if count[what] < 5 {
			t.Errorf("%d mutants of: %s", count[what], what)
		}
	}
	t.Logf("refused: %v", count)
}

type departure func(p *Program, s *Step) bool

// departures are ways in which a step may do something else than its cluster; false where it has no such way.
func departures(whole *Program, part Part, at int) map[string]departure {
	return map[string]departure{
		"one operand more":            func(p *Program, s *Step) bool { return more(p, s, &s.In) },
		"one result more":             func(p *Program, s *Step) bool { return more(p, s, &s.Out) },
		"an operand of another dtype": func(p *Program, s *Step) bool { return p.instead(s, &s.In, otherDType) },
		"a result of another dtype":   func(p *Program, s *Step) bool { return p.instead(s, &s.Out, otherDType) },
		"another part of an operand":  func(p *Program, s *Step) bool { return p.instead(s, &s.In, otherPart) },
		"another part of a result":    func(p *Program, s *Step) bool { return p.instead(s, &s.Out, otherPart) },
		"another tensor as operand":   func(p *Program, s *Step) bool { return p.instead(s, &s.In, otherTensor) },
		"another tensor as result":    func(p *Program, s *Step) bool { return p.instead(s, &s.Out, otherTensor) },
		"an operand less": func(p *Program, s *Step) bool {
			i := slices.IndexFunc(s.In, func(id BufferID) bool { return id != None })
			if i < 0 {
				return false
			}
			p.replace(s, s.In[i], None)
			s.In[i] = None
			return true
		},
		"no cluster":          func(_ *Program, s *Step) bool { s.Runs = nil; return true },
		"a cluster twice":     func(_ *Program, s *Step) bool { s.Runs = append(s.Runs, s.Runs[0]); return true },
		"the step left out":   func(p *Program, _ *Step) bool { p.Parts[part] = slices.Delete(p.Parts[part], at, at+1); return true },
		"the step done twice": func(p *Program, s *Step) bool { p.Parts[part] = append(p.Parts[part], *s); return true },
		"a neighbour's cluster too": func(p *Program, s *Step) bool {
			if at+1 >= len(p.Parts[part]) {
				return false
			}
			s.Runs = append(s.Runs, p.Parts[part][at+1].Runs...)
			p.Parts[part] = slices.Delete(p.Parts[part], at+1, at+2)
			return true
		},
	}
}

// more adds a new tensor to what s names.
func more(p *Program, s *Step, list *[]BufferID) bool {
	id := p.NewBuffer("more", ir.T(ir.F32, 8), WorkArena)
	if s.Cluster != nil { // a cluster names by its accesses, too
		a := Access{Buffer: id, DType: ir.F32, Strides: make([]int64, len(s.Cluster.Shape))}
		if list == &s.In {
			s.Cluster.Loads = append(s.Cluster.Loads, a)
		} else {
			s.Cluster.Stores = append(s.Cluster.Stores, a)
		}
	}
	*list = append(*list, id)
	return true
}

// instead puts what another makes of the first tensor of list in its place.
func (p *Program) instead(s *Step, list *[]BufferID, another func(p *Program, id BufferID) BufferID) bool {
	i := slices.IndexFunc(*list, func(id BufferID) bool { return id != None })
	if i < 0 {
		return false
	}
	id := (*list)[i]
	other := another(p, id)
	p.replace(s, id, other)
	for k, x := range *list {
		if x == id {
			(*list)[k] = other
		}
	}
	return true
}

// replace makes the accesses of s to one buffer those to another.
func (p *Program) replace(s *Step, id, other BufferID) {
	clusters := s.Clusters()
	if s.Epilogue != nil {
		clusters = append(clusters, s.Epilogue)
	}
	for _, c := range clusters {
		if other == None {
			c.Loads = slices.DeleteFunc(c.Loads, func(a Access) bool { return a.Buffer == id })
			continue
		}
		for _, list := range [2][]Access{c.Loads, c.Stores} {
			for k := range list {
				if list[k].Buffer == id {
					list[k].Buffer, list[k].DType = other, p.Buffers[other].Type.DType
				}
			}
		}
	}
}

func otherDType(p *Program, id BufferID) BufferID {
	b := p.Buffers[id]
	to := map[ir.DType]ir.DType{ir.F32: ir.I32, ir.F16: ir.BF16, ir.I32: ir.F32, ir.I64: ir.F64, ir.Bool: ir.U8}[b.Type.DType]
	if to == ir.Invalid {
		panic(fmt.Sprint("no dtype beside ", b.Type.DType))
	}
	b.Type = b.Type.With(to)
	p.Buffers = append(p.Buffers, b)
	return BufferID(len(p.Buffers) - 1)
}

func otherPart(p *Program, id BufferID) BufferID {
	b := p.Buffers[id]
	b.At += b.Type.DType.Size()
	p.Buffers = append(p.Buffers, b)
	return BufferID(len(p.Buffers) - 1)
}

func otherTensor(p *Program, id BufferID) BufferID {
	return p.NewBuffer("other", p.Buffers[id].Type, p.Buffers[id].Arena)
}
