package prove_test

import (
	"regexp"
	"strings"
	"testing"
)

// rankFaults are faults of a step on several ranks, or of one in slices: what matches from becomes to; each is
// reported with these words.
var rankFaults = []struct{ variant, what, from, to, want string }{
	{"ranks", "a bucket is dropped", `%sum.w = all_reduce %d.w .*`, `%sum.w = neg %d.w`, "differs between ranks"},
	{"ranks", "an update reads its rank's gradient", `adam %w, %sum.w,`, `adam %w, %d.w,`, "writes %w from %d.w, which differs between ranks"},
	{"ranks", "a gradient is summed twice", `%sum.b = all_reduce %d.b .*`, "%once = all_reduce %d.b {ranks=4 seq=2}\n  %sum.b = all_reduce %once {ranks=4 seq=3}", "equal on all ranks"},
	{"ranks", "a sum enters another sum", `%sum.b = all_reduce %d.b .*`, "%once = all_reduce %d.b {ranks=4 seq=2}\n  %both = add %once, %d.b\n  %sum.b = all_reduce %both {ranks=4 seq=3}", "a sum over the ranks already"},
	{"ranks", "a mean of gradients", `all_reduce %d.b {ranks`, `all_reduce %d.b {op=mean ranks`, "takes the mean of %d.b"},
	{"ranks", "messages in another order", `all_reduce %d.w {ranks=4 seq=1}`, `all_reduce %d.w {ranks=4 seq=2}`, "is sent as number 2, after %sum.w"},
	{"ranks", "a message for fewer ranks", `all_reduce %d.b {ranks=4`, `all_reduce %d.b {ranks=2`, "is for 2 ranks"},
	{"ranks", "a count of one rank", `count=%sum.count`, `count=%count`, "differs between ranks"},
	{"ranks", "a sum of losses of one rank", `%loss.mean = div %sum.sum,`, `%loss.mean = div %sum,`, "is result 0 of the step and differs between ranks"},
	{"ranks", "a check of one rank", `%skip = or %any.found_inf, %any.fwd`, `%skip = or %found_inf, %fwd`, "this rank's own"},
	{"ranks", "a loss of one rank is checked", `any_nonfinite %loss.mean`, `any_nonfinite %sum`, ""},
	{"ranks", "a scale of one rank", `{found_inf=%any.found_inf`, `{found_inf=%found_inf`, ""},
	{"ranks", "a seed divided by a count", `%d.h = cross_entropy_grad %h, %y, %amp.start.scaled`, "%seed = div %amp.start.scaled, %count\n  %d.h = cross_entropy_grad %h, %y, %seed", "counts the labels of this rank alone"},
	{"ranks lookup", "rows are not gathered", `%all.d.e = all_gather %d.e .*`, "%all.d.e = concat %d.e, %d.e {axis=0}", "differs between ranks"},
	{"ranks lookup", "what is equal on all ranks is gathered", `%all.d.e = all_gather %d.e .*`, "%once = all_reduce %d.e {ranks=2 seq=2}\n  %all.d.e = all_gather %once {axis=0 ranks=2 seq=3}", "gathers %once, which is equal on all ranks"},
	{"ranks lookup", "ids of one rank", `%all.ids = all_gather %ids .*`, "%all.ids = concat %ids, %ids {axis=0}", "differs between ranks"},
	{"ranks lookup", "a gathering out of order", `all_gather %d.e {axis=0 ranks=2 seq=2}`, `all_gather %d.e {axis=0 ranks=2 seq=1}`, "is sent as number 1, after"},
	{"shards", "a clip by the norm of one rank's parts", `norm=%grad_norm max`, `norm=%grad_norm.part max`, "from %clip, which differs between ranks"},
	{"shards", "a check of one rank's parts", `%skip = or %any.found_inf, %any.fwd`, `%skip = or %found_inf, %fwd`, "this rank's own"},
	{"shards", "a mean of gradients", `reduce_scatter %d.w {flat`, `reduce_scatter %d.w {op=mean flat`, "takes the mean of %d.w"},
	{"shards", "a gradient is summed twice", `%sum.b = reduce_scatter %d.b {flat ranks=2 seq=4}`, "%once = all_reduce %d.b {ranks=2 seq=4}\n  %sum.b = reduce_scatter %once {flat ranks=2 seq=5}", "sums %once, which is equal on all ranks"},
	{"shards", "a part of a tensor with other sizes", `%sum.w = reduce_scatter %d.w`, "%turned = transpose %d.w {perm=[1,0]}\n  %sum.w = reduce_scatter %turned", "from %sum.w, which differs between ranks"},
	{"shards", "a whole weight is read", `%h = linear %x.f16, %all.w, `, "%w.f16 = cast %w {to=f16}\n  %h = linear %x.f16, %w.f16, ", "reads %w, of which each rank has the part %amp.shard/w"},
	{"shards", "what is no part is gathered", `%all.b = all_gather %amp.shard/b {`, "%own = reduce_sum %x {axes=[0]}\n  %all.b = all_gather %own {", "gathers %own, which is no part of a tensor"},
	{"shards", "a gathering out of order", `all_gather %amp.shard/b {ranks=2 seq=2`, `all_gather %amp.shard/b {ranks=2 seq=1`, "is sent as number 1, after"},
	{"slices", "a level of a tree is left out", `%amp.acc/w, %amp.acc.level0/w' {micro=%amp.micro level=1}`, `%amp.acc/w, %d.w {micro=%amp.micro level=1}`, "takes %d.w, which is not level 0 of its tree"},
	{"slices", "a level takes itself", `%amp.acc/w, %amp.acc.level0/w' {micro=%amp.micro level=1}`, `%amp.acc/w, %amp.acc.level0/w' {micro=%amp.micro level=0}`, "which is no leaf"},
	{"slices", "a part of the slices is summed", `all_reduce %amp.acc/w, %amp.acc/b`, `all_reduce %amp.acc.level0/w, %amp.acc/b`, "holds a part of the micro-batches and is read"},
	{"slices", "a level counts something else", `%amp.acc.level0/w, %d.w {micro=%amp.micro`, `%amp.acc.level0/w, %d.w {micro=%amp.zero`, "is not the number of the micro-batch"},
	{"slices", "a mean of sums", `all_reduce %amp.acc/w, %amp.acc/b {ranks=2 seq=1 tree}`, `all_reduce %amp.acc/w, %amp.acc/b {op=mean ranks=2 seq=1}`, "takes the mean of %amp.acc/w"},
	{"slices norms", "a norm of one slice", `%all.n = all_reduce %n.ranks {micro=4 ranks=2`, `%all.n = all_reduce %n.ranks {ranks=2`, "is among 1 micro-batches of each rank, want 4"},
	{"slices norms", "norms of each slice", `{micro=4 ranks=2`, `{ranks=2`, "is among 1 micro-batches of each rank, want 4"},
	{"slices norms", "gradients of slices that meet after them", `%amp.acc/c {ranks=2`, `%amp.acc/c {micro=4 ranks=2`, "is among 4 micro-batches of each rank, want 1"},
	{"norms alone", "a statistic of one slice", `commit %mean, %n.new_mean`, `commit %mean, %n.ranks`, "writes %mean from %n.ranks, which differs between micro-batches"},
	{"norms alone", "a gradient of one slice", `adam %w, %amp.acc/w,`, `adam %w, %d.w,`, "from %d.w, which differs between micro-batches"},
	{"ranks drop", "a dropped micro-batch of one rank", `eq %sum.amp.acc.kept, %amp.zero`, `eq %amp.acc.kept, %amp.zero`, "differs between ranks"},
	{"ranks drop", "an accumulator is not summed", `adam %b, %sum.b,`, `adam %b, %amp.acc/b,`, "differs between ranks"},
	{"ranks drop", "an overflow of one rank", `or %any.found_inf, %sum.amp.acc.lost`, `or %any.found_inf, %amp.acc.lost`, "differs between ranks"},
}

// lookup is a model whose head shares the table of its words.
const lookup = `graph @lookup {
  input %ids : i32[4]
  input %y : i32[4]
  param %table : f32[40,4] = normal(0, 0.3)
forward:
  %e = embedding %table, %ids : f32[4,4]
  %z = linear %e, %table {tb} : f32[4,40]
  %sum, %count = cross_entropy %z, %y {ignore=-1} : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}
`

// normed has a batch norm with running statistics.
const normed = `graph @normed {
  input %x : f32[4,8]
  input %y : i32[4]
  param %w : f32[8,5] = normal(0, 0.3)
  param %s : f32[5] = 1
  param %c : f32[5] = 0
  state %mean : f32[5] = 0
  state %var : f32[5] = 1
forward:
  %h = matmul %x, %w : f32[4,5]
  %n, %n.mean, %n.rstd, %n.new_mean, %n.new_var = batch_norm %h, %s, %c, %mean, %var : f32[4,5], f32[5], f32[5], f32[5], f32[5]
  %sum, %count = cross_entropy %n, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}
`

// TestFaultsAcrossRanks: each fault is found. Where want is empty the values agree all the
// same, and nothing is reported.
func TestFaultsAcrossRanks(t *testing.T) {
	for _, f := range rankFaults {
		t.Run(f.what, func(t *testing.T) {
			text, rules := step(t, f.variant)
			at := regexp.MustCompile(strings.NewReplacer("{", `\{`, "/", "/").Replace(f.from))
			if len(at.FindAllString(text, -1)) == 0 {
				t.Fatalf("nothing matches %s in\n%s", f.from, text)
			}
			broken := at.ReplaceAllLiteralString(text, f.to)
			found := judged(t, "broken", broken, rules)
			var all []string
			for _, x := range found {
				all = append(all, x.String())
			}
			if said := strings.Join(all, "\n"); f.want != "" && !strings.Contains(said, f.want) {
				t.Errorf("want %q, got %q", f.want, said)
			} else if f.want == "" && said != "" {
				t.Errorf("want no finding, got %q", said)
			}
		})
	}
}
