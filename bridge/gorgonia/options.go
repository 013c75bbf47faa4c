package bridge

import (
	G "gorgonia.org/gorgonia"

	"ampc"
)

// Option changes a Machine from its default: f32, parameters stepped by the
// user's solver.
type Option func(*options)

type options struct {
	config ampc.TrainConfig
	model  []ampc.ModelOption
	inside bool // an optimizer of ampc's steps the parameters
	cost   *G.Node
	params []*G.Node
	fetch  []*G.Node
}

// WithPolicy computes under a precision policy: ampc.MixedF16() brings dynamic
// loss scaling, ampc.MixedBF16() needs none.
func WithPolicy(p ampc.Policy) Option { return func(o *options) { o.config.Policy = p } }

// WithOptimizer steps the parameters within the machine: RunAll is a whole
// training step, and neither weights nor gradients leave the backend until Sync.
func WithOptimizer(opt ampc.Optimizer, lr ampc.Schedule) Option {
	return func(o *options) { o.config.Optimizer, o.config.LR, o.inside = opt, lr, true }
}

// WithCost names the scalar to differentiate. It is needed where Grad was not
// called, with WithParams, and where it was called on a cost that another cost
// uses; otherwise the machine finds it.
func WithCost(n *G.Node) Option { return func(o *options) { o.cost = n } }

// WithParams makes inputs parameters that have no gradient from Grad.
func WithParams(n ...*G.Node) Option {
	return func(o *options) { o.params = append(o.params, n...) }
}

// WithFetch binds the values of more nodes. Without it a machine binds the
// costs, results that nothing uses, and the targets of gorgonia.Read; a tape
// machine binds every node.
func WithFetch(n ...*G.Node) Option {
	return func(o *options) { o.fetch = append(o.fetch, n...) }
}

// WithModel gives the machine's model options: its backend, its seed.
func WithModel(o ...ampc.ModelOption) Option {
	return func(to *options) { to.model = append(to.model, o...) }
}

// WithConfig changes what the step is compiled to: clipping, the loss scaler. f sees what the other options set. Losses, groups and
// gradients are the machine's.
func WithConfig(f func(*ampc.TrainConfig)) Option { return func(o *options) { f(&o.config) } }
