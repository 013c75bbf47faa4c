package eval

import (
	"fmt"
	"maps"

	"ampc/ir"
)

// together evaluates forward and backward of micro-batches that meet at collectives. From one meeting to
// the next the micro-batches run one after the other, so that each adds to accumulators after the one
// before. It returns the runner of the last, in which the update runs.
func (r *runner) together(env map[string]*Tensor, feeds []map[string]*Tensor) (*runner, error) {
	all := make([]*runner, len(feeds))
	for i, feed := range feeds {
		own := *r
		own.now = maps.Clone(r.now)
		own.res = &Result{Values: maps.Clone(r.res.Values), Next: r.res.Next, all: own.now}
		if err := own.feed(i, env, feed); err != nil {
			return nil, err
		}
		all[i] = &own
	}
	body := append(r.g.Body[ir.Forward][:len(r.g.Body[ir.Forward]):len(r.g.Body[ir.Forward])], r.g.Body[ir.Backward]...)
	for len(body) > 0 {
		n := 0
		for n < len(body) && body[n].Together() == 1 {
			n++
		}
		for _, own := range all {
			if err := own.stretch(body[:n], all); err != nil {
				return nil, err
			}
		}
		if n < len(body) {
			if err := meet(body[n], all); err != nil {
				return nil, err
			}
			n++
		}
		body = body[n:]
	}
	return all[len(all)-1], nil
}

// stretch evaluates nodes of one micro-batch, and lets the variables of all advance.
func (r *runner) stretch(nodes []*ir.Node, all []*runner) error {
	next := map[*ir.Value]*Tensor{}
	for _, n := range nodes {
		if err := r.node(n, r.opt, next); err != nil {
			return err
		}
	}
	for v, t := range next {
		for _, own := range all {
			own.now[v] = t
		}
		r.res.Next[v.Name] = t
	}
	return nil
}

// meet evaluates a collective at which the micro-batches of all ranks meet.
func meet(n *ir.Node, all []*runner) error {
	if int(n.Together()) != len(all) {
		return fmt.Errorf("%s %s: %d micro-batches meet, there are %d", n.Def().Name, n.Name(), n.Together(), len(all))
	}
	var sent []*Tensor
	for _, own := range all {
		for _, v := range n.In {
			sent = append(sent, own.now[v])
		}
	}
	o := all[0].opt
	ranks := [][]*Tensor{sent}
	if n.Int("ranks") > 1 {
		if o.Exchange == nil {
			return fmt.Errorf("%s needs %d ranks", n.Name(), n.Int("ranks"))
		}
		var err error
		if ranks, err = o.Exchange(n, sent); err != nil {
			return err
		}
	}
	var lists [][]*Tensor
	for _, list := range ranks {
		for k := len(n.In); len(list) > 0; list = list[k:] {
			lists = append(lists, list[:k])
		}
	}
	o.Exchange = func(*ir.Node, []*Tensor) ([][]*Tensor, error) { return lists, nil }
	for _, own := range all {
		if err := own.node(n, o, nil); err != nil {
			return err
		}
	}
	return nil
}
