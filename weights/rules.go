package weights

import (
	"fmt"
	"slices"
	"strings"

	"ampc"
	"ampc/ir"
	"ampc/passes"
)

// Option changes how Load and Save map names, or what Load allows. In patterns a *
// stands for any characters, dots included.
type Option func(*rules)

// rules are what options say.
type rules struct {
	key       string
	prefixes  []string
	renames   []rename
	transpose []string
	torch     bool
	fresh     []string
	ignore    []string
	partial   bool
	dtype     ampc.DType
}

type rename struct{ file, model string }

// Key is the place of the tensors in a file of torch.save that holds more than a
// state_dict, such as "model_state_dict".
func Key(key string) Option { return func(r *rules) { r.key = key } }

// Rename maps names in the file to names in the model: each * of model is what the *
// at the same place of file stands for. Rename("layers.*.fc.*", "h*.up.*") loads
// h3.up.w from layers.3.fc.w. The first rule whose tensor is in the file counts; a
// variable without one is looked for under its own name.
func Rename(file, model string) Option {
	return func(r *rules) { r.renames = append(r.renames, rename{file, model}) }
}

// Prefix is before the names of some or all tensors in a file, such as "module." or
// "transformer.". Save writes it before every name.
func Prefix(p string) Option { return func(r *rules) { r.prefixes = append(r.prefixes, p) } }

// Transpose exchanges the dimensions of matrices: variables of the model that match a
// pattern (as those of ampc.Group do), such as weights of linear layers, which PyTorch
// keeps as [out,in].
func Transpose(patterns ...string) Option {
	return func(r *rules) { r.transpose = append(r.transpose, patterns...) }
}

// PyTorch maps the layers of package ampc to the modules of torch.nn: fc.w to
// fc.weight, transposed where it is the weight of a linear layer, fc.b to fc.bias, a
// norm's scale to weight, its mean and var to running_mean and running_var, an
// attention's qkv and out to in_proj_weight, in_proj_bias and out_proj. Layers of
// torch.nn.LSTM, GRU and RNN have other parameters and are not mapped.
func PyTorch() Option { return func(r *rules) { r.torch = true } }

// Fresh lets variables that match a pattern keep what they hold where the file lacks
// them or has them in another shape: a new head on old weights.
func Fresh(patterns ...string) Option {
	return func(r *rules) { r.fresh = append(r.fresh, patterns...) }
}

// Ignore leaves tensors of the file that match a pattern.
func Ignore(patterns ...string) Option {
	return func(r *rules) { r.ignore = append(r.ignore, patterns...) }
}

// Partial loads what is there: variables may be missing from the file, and tensors
// may belong to no variable. The Report lists them.
func Partial() Option { return func(r *rules) { r.partial = true } }

// As makes Save write weights as d: F32 (the default), F16, BF16 or F64.
func As(d ampc.DType) Option { return func(r *rules) { r.dtype = d } }

func rulesOf(opts []Option) (*rules, error) {
	r := &rules{dtype: ampc.F32}
	for _, o := range opts {
		o(r)
	}
	for _, n := range r.renames {
		if strings.Count(n.file, "*") != strings.Count(n.model, "*") {
			return nil, fmt.Errorf("rename %q to %q: want as many * in one as in the other", n.file, n.model)
		}
	}
	if !r.dtype.Float() {
		return nil, fmt.Errorf("save as %s: want a float dtype", r.dtype)
	}
	return r, nil
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return passes.Matches(p, name) })
}

// place is where a variable may be in a file.
type place struct {
	name string
	turn bool // its matrix is transposed there
}

// places are those of a variable, the most likely one first.
func (r *rules) places(variable string, torch layout) []place {
	turn := matches(r.transpose, variable)
	names := []string{variable}
	if name, ok := torch.names[variable]; ok {
		names = []string{name, variable}
	}
	var out []place
	for _, n := range r.renames {
		for _, name := range names {
			if parts, ok := capture(n.model, name); ok {
				out = append(out, place{fill(n.file, parts), turn || torch.turned[variable]})
			}
		}
	}
	for _, name := range names {
		out = append(out, place{name, turn || name != variable && torch.turned[variable]})
	}
	plain := slices.Clone(out)
	for i := len(r.prefixes) - 1; i >= 0; i-- {
		var with []place
		for _, p := range plain {
			with = append(with, place{r.prefixes[i] + p.name, p.turn})
		}
		out = append(with, out...)
	}
	return out
}

// capture matches all of s against a pattern and returns what each * stands for, the
// first ones as short as possible.
func capture(pattern, s string) ([]string, bool) {
	head, rest, star := strings.Cut(pattern, "*")
	if !strings.HasPrefix(s, head) {
		return nil, false
	}
	s = s[len(head):]
	if !star {
		return nil, s == ""
	}
	for i := range len(s) + 1 {
		if more, ok := capture(rest, s[i:]); ok {
			return append([]string{s[:i]}, more...), true
		}
	}
	return nil, false
}

// fill puts parts in the place of each * of a pattern.
func fill(pattern string, parts []string) string {
	var b strings.Builder
	for i, word := range strings.Split(pattern, "*") {
		if i > 0 {
			b.WriteString(parts[i-1])
		}
		b.WriteString(word)
	}
	return b.String()
}

// layout is how torch.nn keeps the parameters of ampc's layers: their names there, and
// the weights of linear layers, which are [out,in].
type layout struct {
	names  map[string]string
	turned map[string]bool
}

// torchLayout finds the layers of a graph.
func torchLayout(g *ir.Graph) layout {
	l := layout{map[string]string{}, map[string]bool{}}
	for _, n := range g.Nodes {
		if n.Op == ir.OpLinear && !n.Flag("tb") && n.In[1].IsVar() {
			l.turned[n.In[1].Name] = true
		}
	}
	last := map[string]string{"w": "weight", "b": "bias", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
	for _, v := range g.Vars {
		i := strings.LastIndexByte(v.Name, '.')
		layer, own := v.Name[:max(i, 0)], v.Name[i+1:]
		word, ok := last[own]
		if !ok || i < 0 {
			continue
		}
		l.names[v.Name] = layer + "." + word
		if of, ok := strings.CutSuffix(layer, ".qkv"); ok {
			l.names[v.Name] = of + ".in_proj_" + word
		} else if of, ok := strings.CutSuffix(layer, ".out"); ok && g.Var(of+".qkv.w") != nil {
			l.names[v.Name] = of + ".out_proj." + word
		}
	}
	return l
}
