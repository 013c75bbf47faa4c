package lower

import "ampc/ir"

// lowerProductLaunch lowers a product and the nodes that its kernel runs with it (ir.Caps.Products)
// to one step. It reports false for other nodes.
func (l *Lowerer) lowerProductLaunch(nodes []*ir.Node) bool {
	caps := l.p.Target.Caps()
	p, ok := caps.ProductLaunch(nodes)
	if !ok || !p.Fits() || !p.Stores() && l.stored(p.Result, nodes) {
		return false
	}
	var own []link
	if p.Result != p.Product.Out[0] {
		var rest []*ir.Node
		if own, rest, ok = l.readers.epilogue(caps, p.Product, []*ir.Node{p.Result.Def}); !ok || len(rest) > 0 {
			return false
		}
	}
	l.now = nodes
	s, _ := l.withEpilogue(p.Product, own)
	y := l.result(p.With.Out[0])
	e := s.epilogue()
	switch {
	case p.Summed >= 0:
		s.Out = []BufferID{l.result(p.Result), y}
		e.BiasGrad, e.Summed = 1, p.Summed
	default:
		s.Node = NodeRef{p.With.Name(), p.With.Pos}
		s.Out = []BufferID{y}
		e.Act = launchActs[p.With.Op]
		if aux := p.Aux(); aux != nil {
			e.Aux = len(s.In)
			s.In = append(s.In, l.in(aux))
		} else if l.stored(p.Result, nodes) {
			e.Aux = len(s.Out)
			s.Out = append(s.Out, l.result(p.Result))
		}
	}
	l.emit(s)
	return true
}

// launchActs are the activations that the kernel of a product may run.
var launchActs = map[ir.Op]Act{ir.OpGelu: Gelu, ir.OpGeluGrad: GeluGrad, ir.OpRelu: Relu}
