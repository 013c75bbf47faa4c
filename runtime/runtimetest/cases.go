package runtimetest

// cases holds nodes to run, at least one for every row: "op operands {attrs}".
//
// Operands: x[d,..] floats of the dtype under test, n[..] negative ones, p[..]
// positive ones, q[..] probabilities in (0,1), f[..] floats that are always f32,
// s[..] positive f32, k5[..] i32 below 5, K5[..] i64 below 5, u[..] bytes,
// b[..] bools, _ an absent operand.
var cases = []string{
	// elementwise
	"neg x[7,3]", "abs x[7,3]", "sign x[7,3]", "sqrt p[7,3]", "sqrt x[9]", "rsqrt p[7,3]", "square x[1025]", "reciprocal x[33]",
	"affine x[7,3] {scale=-2 shift=0.5}",
	"exp x[7,5]", "expm1 x[40]", "log p[40]", "log x[40]", "log1p p[40]", "sin x[40]", "cos x[40]", "tan x[40]", "atan x[40]", "erf x[40]", "tanh x[40]",
	"sigmoid x[40]", "sigmoid_grad x[40] x[40]", "tanh_grad x[40] x[40]",
	"relu x[7,3]", "relu x[3,70001]", "relu_grad x[7,3] x[7,3]", "leaky_relu x[40]", "leaky_relu_grad x[40] x[40]", "prelu x[2,3,4] x[3,1]",
	"elu x[40]", "selu x[40]", "gelu x[40]", "gelu x[40] {approx=tanh}", "gelu_grad x[40] x[40]", "gelu_grad x[40] x[40] {approx=tanh}",
	"silu x[40]", "silu_grad x[40] x[40]", "mish x[40]", "softplus x[40]", "softsign x[40]", "hardswish x[40]", "hardsigmoid x[40]",
	"floor x[40]", "trunc x[40]", "ceil x[40]", "round_even x[40]", "clip x[40] {lo=-0.5 hi=0.5}", "not b[9]", "isnan x[40]", "isinf x[40]",
	"add x[7,3] x[7,3]", "add x[7,3] f[3]", "add x[] x[4]", "add x[2,1,3] x[4,1]", "add k9[5] k9[5]", "add K9[5] K9[5]", "sub x[40] x[40]", "mul x[40] x[40]",
	"mul x[3,70001] x[3,1]", "mul x[65,129] x[129]", "div x[40] x[40]", "div k9[20] k3[20]", "mod x[40] p[40]", "mod k9[9] k4[9]", "pow p[40] x[40]", "min x[40] x[40]", "max x[40] x[40]", "min k9[40] k9[40]",
	"eq k3[40] k3[40]", "ne x[40] x[40]", "lt x[40] x[40]", "le x[40] x[40]", "gt x[40] x[40]", "ge k9[40] k9[40]", "and b[40] b[40]", "or b[40] b[40]", "xor b[40] b[40]",
	"and k9[9] k9[9]", "xor K9[9] K9[9]",
	"where b[4,5] x[4,5] x[4,5]", "where b[4,1] x[4,5] f[5]", "where b[9] k4[9] k4[9]", "where b[9] x[9] _", "add_n x[9] x[9] f[9]", "add_n x[9] x[9] x[9] x[9]",
	"cast x[40] {to=f16}", "cast x[40] {to=bf16}", "cast x[40] {to=f32}", "cast x[40] {to=i32}", "cast x[40] {to=i64}", "cast x[40] {to=u8}", "cast x[40] {to=bool}", "cast k9[40] {to=f16}",
	"cast x[20] {to=f64}", "cast K9[40] {to=f32}", "cast b[9] {to=f32}", "cast b[9] {to=i32}", "cast u[9] {to=f16}", "round x[40] {to=f16}", "round x[40] {to=bf16}",
	"add x[0,3] x[0,3]", "relu x[3,0]",
	// shape
	"reshape x[4,6] _ {shape=[3,8]}", "transpose x[4,6] {perm=[1,0]}", "transpose x[2,3,4,5] {perm=[0,2,1,3]}", "transpose x[2,3,4,5] {perm=[3,1,0,2]}", "transpose x[130,257] {perm=[1,0]}", "transpose b[3,4] {perm=[1,0]}",
	"broadcast x[4,1] _ {shape=[3,4,5]}", "squeeze x[4,1,3] {axes=[1]}", "unsqueeze x[4,3] {axes=[0]}",
	"slice x[7,8] {starts=[1,2] ends=[6,8] steps=[2,3]}", "slice x[7,8] {starts=[-3] ends=[100] axes=[1]}", "slice K9[7] {starts=[3] ends=[3]}",
	"pad x[3,4] {lo=[1,2] hi=[0,3] value=1.5}", "pad x[3,4] {lo=[-1,0] hi=[0,-2]}", "pad x[3,4] {lo=[1,1] hi=[1,1] inner=[2,1]}", "pad x[5,4] {lo=[2,1] hi=[1,3] mode=reflect}", "pad x[5,4] {lo=[2,1] hi=[1,3] mode=edge}",
	"concat x[2,3] x[4,3] x[1,3]", "concat x[2,3] x[2,4] {axis=-1}", "concat x[2,3] f[2,4] {axis=1}", "concat k9[2,3] K9[1,3]", "split x[7,3] {sizes=[2,4,1]}", "split x[3,7] {sizes=[3,4] axis=1}",
	"tile x[2,3] {reps=[2,3]}", "flip x[3,4] {axes=[1]}", "flip x[3,4] {axes=[0,1]}", "tril x[2,4,5]", "tril x[4,5] {k=-1}", "triu x[4,5] {k=1}", "triu x[5,3] {k=-2}",
	"depth_to_space x[2,8,3,2] {block=2}", "depth_to_space x[2,8,3,2] {block=2 mode=crd}", "space_to_depth x[2,2,6,4] {block=2}", "space_to_depth x[2,2,6,4] {block=2 mode=crd}",
	"gather x[5,4] k5[2,3]", "gather x[3,5,4] K5[6] {axis=1}", "gather_elements x[5,4] k5[3,4]", "gather_elements x[5,4] k4[5,2] {axis=1}", "gather_elements x[5,4,3] k5[7,2,3]", "gather_elements k9[5,4] K5[2,3]",
	"scatter x[5,4] k5[2,4] x[2,4]", "scatter_add x[5,4] k5[7,4] x[7,4]", "scatter_add x[5,4] K4[5,2] x[5,2] {axis=1}", "scatter f[5] k5[2] x[2]", "scatter x[5,4] k5[9,2] x[9,2]", "scatter k9[5,40] k5[7,40] k9[7,40]", "scatter_add x[5,40] k5[70,40] x[70,40]", "scatter_add x[4,5,4] k5[4,70,3] f[4,70,3] {axis=1}",
	"one_hot k7[3,4] {depth=5}", "one_hot k7[3,4] {depth=5 axis=0 dtype=f16}", "iota {shape=[3,4] axis=1}", "iota {shape=[300] dtype=f16}", "full _ {shape=[3,4] value=0.1}", "full _ {shape=[3] value=0.1 dtype=bf16}", "full _ {shape=[3] value=7 dtype=i32}",
	"resize x[1,2,3,4] {sizes=[6,8]}", "resize x[1,2,3,4] {sizes=[5,3] mode=linear}", "resize x[1,2,6,8] {sizes=[3,4] ties=up}", "resize_grad x[1,2,3,4] {sizes=[6,8] ties=up}", "resize x[1,3,4,2] {sizes=[5,7] mode=linear layout=NHWC coords=align_corners}", "resize_grad x[1,2,6,8] {sizes=[3,4] mode=linear}",
	// reductions
	"sum_to x[2,3,4] f[3,1]", "sum_to x[70,33] _ {shape=[33]}", "reduce_sum x[4,5]", "reduce_sum x[4,5] {axes=[0]}", "reduce_sum x[3,4,5] {axes=[0,2] keep}", "reduce_sum k9[4,5] {axes=[1]}", "reduce_sum x[1,70001]",
	"reduce_mean x[4,5] {axes=[1]}", "reduce_var x[4,33] {axes=[1] correction=1}", "reduce_max x[4,5] {axes=[1]}", "reduce_max x[3,4,5] {axes=[0,2]}", "reduce_max k9[4,5] {axes=[0]}", "reduce_min x[4,5] {axes=[0]}",
	"reduce_prod x[4,5] {axes=[1]}", "reduce_l1 x[4,5] {axes=[0]}", "reduce_l2 x[4,5] {axes=[1]}", "logsumexp x[4,5] {axes=[1]}", "logsumexp x[4,5]", "logsumexp x[2,33001] {axes=[1]}", "reduce_var x[33001] {correction=1}", "reduce_max k9[3,0] {axes=[1]}", "reduce_sum u[4,5]", "reduce_min K9[3,4,5] {axes=[1]}", "reduce_max K9[3,70]", "reduce_prod x[3,0] {axes=[1]}", "reduce_mean x[3,0] {axes=[1]}", "logsumexp x[3,0] {axes=[1]}", "reduce_sum x[0,5] {axes=[0]}", "reduce_max x[3,0] {axes=[1]}",
	"argmax x[4,5] {axis=1}", "argmin x[4,5]", "argmax k9[4,5] {axis=1}", "argmin K9[4,5] {axis=0}", "argmax u[3,40] {axis=1}", "cumsum x[4,5] {axis=1}", "cumsum x[4,5] {axis=0 exclusive reverse}", "cummax x[4,5] {axis=1}", "cummin x[3,70,2] {axis=1}", "cummax k9[4,50] {axis=1}", "cummin K9[40,3] {axis=0}", "cummax u[3,40] {axis=-1}", "cummax x[0,3]", "linear_scan x[4,5] x[4,5] {axis=1}", "linear_scan x[3,70,2] x[3,70,2] {axis=1 reverse}", "topk x[4,9] {k=3}", "topk x[9,4] {k=2 axis=0 smallest}", "topk k9[5,6] {k=6}", "topk K9[2,5,3] {k=2 axis=1 smallest}",
	// linear
	"matmul x[5,7] x[7,9]", "matmul x[7,5] x[7,9] {ta}", "matmul x[5,7] x[9,7] {tb}", "matmul x[2,7,5] x[2,9,7] {ta tb}", "matmul x[65,130] x[130,33]", "matmul x[1,64] x[64,300]", "matmul x[2,3,5,7] x[3,7,4]", "matmul x[2,1,5,7] x[3,7,4]",
	"matmul x[4,2,3,5,6] x[4,1,3,6,2]", "matmul x[3,5,7] x[7,2]", "matmul x[5,7] x[7,9] {math=tf32}", "matmul x[5,0] x[0,4]", "matmul x[0,5] x[5,4]",
	"linear x[4,3,7] x[7,5] x[5]", "linear x[6,7] x[5,7] _ {tb}", "embedding x[11,6] k11[3,4]", "embedding_grad x[3,4,6] K11[3,4] {rows=11}",
	"conv x[2,3,9,8] x[4,3,3,2] x[4] {strides=[2,1] pads=[1,0,1,2] dilations=[1,2]}", "conv x[1,4,5,5] x[6,2,3,3] _ {groups=2}", "conv x[2,7,7,4] x[6,3,3,2] x[6] {strides=[2,2] pads=[1,1,1,1] groups=2 layout=NHWC}",
	"conv x[2,3,7] x[4,3,3] _ {pads=[2,0]}", "conv x[1,2,3,4,3] x[2,2,2,2,2] _", "conv x[2,6,8,8] x[6,1,3,3] _ {groups=6 pads=[1,1,1,1]}", "conv x[2,8,6,6] x[5,8,1,1] x[5]",
	"conv_grad_x x[2,4,3,6] x[4,3,3,2] {strides=[2,1] pads=[1,0,1,2] dilations=[1,2] size=[5,6]}", "conv_grad_w x[2,3,5,6] x[2,4,3,6] {strides=[2,1] pads=[1,0,1,2] dilations=[1,2] kernel=[3,2]}",
	"conv_grad_w x[2,6,8,8] x[2,6,8,8] {groups=6 pads=[1,1,1,1] kernel=[3,3]}", "conv_grad_x x[2,7,7,6] x[6,3,3,2] {pads=[1,1,1,1] groups=2 layout=NHWC size=[7,7]}",
	"conv x[2,64,3,7] x[17,64,3,3] x[17] {pads=[1,1,1,1]}", "conv x[1,6,5,65] x[16,3,3,65] _ {pads=[1,0,1,2] layout=NHWC}", "conv_grad_x x[2,65,3,7] x[65,16,3,3] {pads=[1,1,1,1] size=[3,7]}", "conv_grad_x x[1,6,5,64] x[64,3,3,17] {pads=[1,0,1,2] size=[6,5] layout=NHWC}",
	"conv_grad_w x[42,64,1,3] x[42,64,1,3] {pads=[1,1,1,1] kernel=[3,3]}", "conv_grad_w x[4,65,9,7] x[4,64,9,7] {pads=[1,1,1,1] kernel=[3,3]}", "conv_grad_w x[4,9,7,64] x[4,9,7,65] {pads=[1,0,1,2] kernel=[3,3] layout=NHWC}",
	"conv_transpose x[2,4,3,3] x[4,2,3,3] x[4] {strides=[2,2] pads=[1,1,1,1] groups=2 output_padding=[1,0]}", "conv_transpose x[1,3,3,4] x[4,2,2,3] x[3] {layout=NHWC strides=[2,2]}",
	// norm
	"softmax x[3,33]", "softmax x[3,4,2] {axis=1}", "softmax_grad q[3,33] x[3,33]", "softmax_grad q[3,4,2] x[3,4,2] {axis=1}", "log_softmax x[3,33]", "log_softmax_grad n[3,33] x[3,33]",
	"layer_norm x[6,33] f[33] f[33]", "layer_norm x[3,5] _ _ {eps=0.1}", "layer_norm x[2,3,2,3] f[2,3] f[2,3] {dims=2}", "layer_norm_grad x[3,33] x[3,33] f[3] s[3] f[33]", "layer_norm_grad x[3,5] x[3,5] f[3] s[3] _",
	"rms_norm x[6,33] f[33]", "rms_norm_grad x[3,33] x[3,33] s[3] f[33]",
	"layer_norm x[2,17001] _ _", "layer_norm_grad x[3,9001] x[3,9001] f[3] s[3] f[9001]", "rms_norm_grad x[2,17001] x[2,17001] s[2] f[17001]", "group_norm_grad x[2,3,2,8] x[2,3,2,8] f[2,2] s[2,2] f[8] {groups=2 layout=NHWC}", "group_norm x[2,4,3,2] f[4] f[4] {groups=2}", "group_norm x[2,3,2,4] f[4] f[4] {groups=2 layout=NHWC}", "group_norm_grad x[2,4,3] x[2,4,3] f[2,2] s[2,2] f[4] {groups=2}", "instance_norm x[2,3,4] f[3] f[3]",
	"batch_norm x[2,3,4] f[3] f[3] f[3] s[3]", "batch_norm x[4,2,3] f[3] f[3] _ _ {layout=NHWC}", "batch_norm x[40,3]", "batch_norm_grad x[2,3,4] x[2,3,4] f[3] s[3] f[3]", "batch_norm_grad x[4,2,3] x[4,2,3] f[3] s[3] f[3] {layout=NHWC}", "batch_norm_infer x[2,3,4] f[3] f[3] f[3] s[3]",
	// attention
	"attention x[2,2,3,4] x[2,2,5,4] x[2,2,5,3] _", "attention x[1,4,3,2] x[1,2,4,2] x[1,2,4,2] _ {causal}", "attention x[2,4,3,2] x[2,2,3,2] x[2,2,3,2] x[4,1,3] {scale=0.5}", "attention x[2,2,3,4] x[2,2,5,4] x[2,2,5,3] x[2,1,3,1]", "attention x[1,2,33,16] x[1,2,33,16] x[1,2,33,16] _ {causal}",
	"attention_grad x[1,4,3,2] x[1,2,4,2] x[1,2,4,3] x[1,4,3,3] x[1,4,3,3] s[1,4,3] _ {causal}",
	"attention x[1,2,128,8] x[1,2,128,8] x[1,2,128,8] _", "attention_grad x[1,2,128,8] x[1,2,128,8] x[1,2,128,8] x[1,2,128,8] x[1,2,128,8] s[1,2,128] _ {causal}",
	"rope x[2,5,6] _", "rope x[2,5,6] K9[5] {interleaved}", "rope x[2,3,5,6] k9[2,5] {dims=4 inverse}",
	// recurrent
	"lstm x[5,3,2,16] x[2,4,16] x[2,3,4] f[2,3,4]", "lstm x[5,3,1,16] x[1,4,16] _ _ {reverse}", "lstm_grad x[2,4,16] q[5,3,2,16] f[5,3,2,4] f[2,3,4] x[5,3,2,4] x[5,3,2,4] x[5,3,2,16]", "lstm_grad x[1,4,16] q[5,3,1,16] f[5,3,1,4] _ x[5,3,1,4] _ _ {reverse}",
	"gru x[5,3,2,12] x[2,4,12] f[2,4] x[2,3,4]", "gru x[5,3,1,12] x[1,4,12] _ _ {reverse}", "gru_grad x[2,4,12] q[5,3,2,16] x[5,3,2,4] x[2,3,4] x[5,3,2,4] x[5,3,2,16]", "gru_grad x[1,4,12] q[5,3,1,16] x[5,3,1,4] _ x[5,3,1,4] _ {reverse}",
	"rnn x[5,3,2,4] x[2,4,4] x[2,3,4]", "rnn x[5,3,1,4] x[1,4,4] _ {reverse}", "rnn x[5,3,2,4] x[2,4,4] _ {activation=relu}", "rnn x[5,3,1,9] x[1,9,9] f[1,3,9] {activation=relu reverse}",
	"rnn_grad x[2,4,4] q[5,3,2,4] x[5,3,2,4]", "rnn_grad x[1,4,4] q[5,3,1,4] x[5,3,1,4] {reverse}", "rnn_grad x[2,4,4] x[5,3,2,4] x[5,3,2,4] {activation=relu}",
	// random
	"dropout x[7,301] K99[] k9[] k4[] {p=0.3 rng=5}", "dropout_grad x[7,301] K99[] k9[] _ {p=0.3 rng=5}", "uniform K99[] k9[] k4[] _ {shape=[5,77] lo=-1 hi=3 rng=2}", "uniform K99[] k9[] K21474836482[] {shape=[9] rng=6}", "dropout x[3,7] K99[] k9[] K21474836482[] {p=0.3 rng=7}", "normal K99[] k9[] _ _ {shape=[5,77] rng=3}", "bernoulli K99[] k9[] k4[] _ {shape=[4097] p=0.25 rng=4}",
	// pool
	"max_pool x[2,3,7,6] {kernel=[3,2] strides=[2,2] pads=[1,0,1,1]}", "max_pool x[2,7,6,3] {kernel=[2,2] strides=[2,2] layout=NHWC ceil}", "max_pool x[2,3,9] {kernel=[3] dilations=[2]}", "max_pool x[2,2,5,4,6] {kernel=[2,3,2] strides=[2,1,2] pads=[1,1,0,0,1,0]}", "max_pool_grad x[2,2,2,2,2] k60[2,2,2,2,2] {size=[3,4,5]}", "max_pool_grad x[2,3,2,3] k20[2,3,2,3] {size=[5,4] layout=NHWC}",
	"avg_pool x[2,5,4,6,2] {kernel=[2,3,2] strides=[2,1,2] pads=[1,1,0,0,1,0] layout=NHWC}", "avg_pool_grad x[2,2,3,4,3] {kernel=[2,3,2] strides=[2,1,2] pads=[1,1,0,0,1,0] size=[5,4,6]}", "adaptive_avg_pool x[1,2,5,4,3] {size=[2,3,3]}",
	"max_pool_grad x[2,3,3,2] k6[2,3,3,2] {size=[5,4]}", "avg_pool x[2,3,7,6] {kernel=[3,2] strides=[2,2] pads=[1,0,1,1]}", "avg_pool x[2,7,6,3] {kernel=[3,3] strides=[2,2] pads=[1,1,1,1] layout=NHWC count_include_pad ceil}",
	"avg_pool_grad x[2,3,4,4] {kernel=[3,2] strides=[2,2] pads=[1,0,1,1] size=[7,7]}", "adaptive_avg_pool x[2,3,7,5] {size=[3,2]}", "adaptive_avg_pool x[2,7,5,3] {size=[1,1] layout=NHWC}", "adaptive_avg_pool_grad x[2,3,3,2] {size=[7,5]}",
	"max_pool x[2,3,9,71] {kernel=[2,2] strides=[2,2]}", "max_pool x[40,9,8,8] {kernel=[2,2] strides=[2,2]}", "avg_pool x[2,3,9,71] {kernel=[2,2] strides=[2,2]}", "avg_pool_grad x[2,3,4,35] {kernel=[2,2] strides=[2,2] size=[9,71]}", "avg_pool x[2,3,8,3] {kernel=[2,2] strides=[2,2] ceil}",
	// loss
	"embedding x[11,6] U11[3,4]", "embedding_grad x[3,4,6] U11[3,4] {rows=11}", "gather x[5,4] U5[2,3]", "gather_elements x[5,4] U5[3,4]", "scatter x[5,4] U5[2,4] x[2,4]", "scatter_add x[5,4] U5[7,4] x[7,4]",
	"cross_entropy x[9,7] U7[9]", "cross_entropy_grad x[9,7] U7[9] f[]", "max_pool_grad x[2,3,3,2] U6[2,3,3,2] {size=[5,4]}",
	"cross_entropy x[9,7] k7[9]", "cross_entropy x[9,7] K7[9] {smoothing=0.1 ignore=3}", "cross_entropy x[2,7,3] k7[2,3] {axis=1}", "cross_entropy_grad x[9,7] k7[9] f[]", "cross_entropy_grad x[2,7,3] k7[2,3] f[] {axis=1 smoothing=0.1 ignore=2}",
	"cross_entropy x[9,7] k7[9] s[7]", "cross_entropy x[9,37] K7[9] s[37] {smoothing=0.1 ignore=3}", "cross_entropy x[2,7,3] k7[2,3] f[7] {axis=1 ignore=2}", "cross_entropy_grad x[9,7] k7[9] f[] s[7]", "cross_entropy_grad x[9,37] K7[9] f[] f[37] {smoothing=0.1 ignore=3}", "cross_entropy_grad x[2,7,3] k7[2,3] f[] s[7] {axis=1 ignore=2}",
	"nll n[9,7] k7[9]", "nll n[2,7,3] K7[2,3] {axis=1 ignore=1}", "soft_cross_entropy x[9,7] q[9,7]", "soft_cross_entropy x[2,7,3] q[2,7,3] {axis=1}", "bce_with_logits x[9,7] q[9,7]", "bce q[9,7] q[9,7]", "mse x[9,7] x[9,7]", "l1_loss x[9,7] x[9,7]", "huber x[9,7] x[9,7] {delta=0.5}", "kl_div n[9,7] q[9,7]", "kl_div n[9,7] n[9,7] {log_target}", "mse x[20001] x[20001]",
	// precision
	"scale x[9] s[]", "unscale x[9] s[]", "multiplier s[] s[] s[] {max=1}", "multiplier s[] k9[] _", "any_nonfinite x[9] x[40000]", "global_norm s[] x[9] x[40000]", "global_norm _ x[9]",
	"update_scale s[] k9[] k2[] k3[] k3[] b[] b[]", "update_scale s[] k9[] k2[] k3[] k3[] b[] _ {every=1 cap=4 hysteresis=2}",
	// update
	"accum f[9] x[9] b[] _", "accum f[9] x[9] b[] b[]", "accum_tree f[9] x[9] k8[] {level=0}", "accum_tree f[9] x[9] k8[] {level=1}", "accum_tree f[300] f[300] k4[] {level=2}", "commit f[9] f[9] b[]", "count k9[] b[]", "bias_correction s[] b[] {beta=0.9}", "ema f[9] f[9] k3[] b[] {decay=0.99}",
	"schedule s[] k99[] {kind=cosine warmup=10 total=100 min=0.1}", "schedule s[] k99[] {kind=step every=10 drop=0.5}", "schedule s[] k99[] {kind=linear total=80}",
	"assign f[9] f[9] f[9] s[] b[]", "sgd f[9] x[9] _ s[] b[] s[]", "sgd f[9] x[9] f[9] s[] b[] _ {momentum=0.9 nesterov decay=0.01}", "adam f[9] x[9] f[9] s[9] s[] b[] s[] s[] s[]", "adamw f[70001] x[70001] f[70001] s[70001] s[] b[] s[] s[] s[] {decay=0.1}",
	// empty
	"softmax x[0,5]", "log_softmax_grad n[0,5] x[0,5]", "layer_norm x[0,5] f[5] f[5]", "layer_norm_grad x[0,5] x[0,5] f[0] s[0] f[5]", "rms_norm x[0,5] f[5]", "transpose x[0,3] {perm=[1,0]}", "concat x[0,3] x[2,3]", "split x[3,2] {sizes=[0,3]}",
	"gather x[5,4] k5[0]", "embedding x[5,4] k5[0,3]", "embedding_grad x[0,4] k5[0] {rows=5}", "scatter x[5,4] k5[0,4] x[0,4]", "scatter_add x[5,4] k5[0,4] x[0,4]", "one_hot k5[0] {depth=3}", "iota {shape=[0]}", "tril x[0,4,5]", "pad x[0,3] {lo=[1,0] hi=[1,0] value=2}",
	"conv x[0,3,5,5] x[4,3,3,3] x[4]", "conv_grad_w x[0,3,5,5] x[0,4,3,3] {kernel=[3,3]}", "max_pool x[0,3,4,4] {kernel=[2,2]}", "avg_pool_grad x[0,3,3,3] {kernel=[2,2] size=[4,4]}", "attention x[0,2,3,4] x[0,2,3,4] x[0,2,3,4] _", "rope x[0,5,6] _",
	"cross_entropy x[0,5] k5[0]", "cross_entropy_grad x[0,5] k5[0] f[]", "nll n[0,5] k5[0]", "mse x[0] x[0]", "cumsum x[0,3]", "linear_scan x[0,3] x[0,3]", "topk x[0,5] {k=2}", "argmax x[0,5] {axis=1}", "sum_to x[0,5] f[5]", "reduce_mean x[0,5] {axes=[1]}", "reduce_sum x[3,0,2]", "linear x[0,7] x[7,5] x[5]", "matmul x[0,3,4] x[0,4,2]",
	"any_nonfinite x[0]", "global_norm _ x[0]", "sgd f[0] x[0] _ s[] _ _", "batch_norm_infer x[0,3,4] f[3] f[3] f[3] s[3]", "group_norm x[0,4,3] f[4] f[4] {groups=2}", "lstm x[5,0,1,16] x[1,4,16] _ _", "dropout x[0] K9[] k9[] _ {p=0.5 rng=1}", "resize x[0,2,3,4] {sizes=[6,8]}",
	// large enough to be cut into tasks
	"softmax x[300,700]", "layer_norm x[513,257] f[257] f[257]", "layer_norm_grad x[513,257] x[513,257] f[513] s[513] f[257]", "cross_entropy x[300,500] k500[300]", "cross_entropy x[300,500] k500[300] s[500] {smoothing=0.1}", "cross_entropy_grad x[300,500] k500[300] f[]", "reduce_sum x[257,3,301] {axes=[0,2]}", "reduce_max x[257,301] {axes=[0]}", "embedding_grad x[3000,40] k7[3000] {rows=7}", "embedding_grad x[300,5] k1100[300] {rows=1100}", "reduce_sum x[4100,9] {axes=[0]}", "reduce_l2 x[4100,8] {axes=[0]}", "reduce_max x[2,2100,24] {axes=[1]}",
	"transpose x[3,170,190] {perm=[0,2,1]}", "transpose x[40,50,6,7] {perm=[2,0,3,1]}", "concat x[300,400] x[300,100] {axis=1}", "batch_norm x[16,5,31,33] f[5] f[5] f[5] s[5]", "batch_norm_grad x[16,5,31,33] x[16,5,31,33] f[5] s[5] f[5]", "group_norm_grad x[8,6,31,33] x[8,6,31,33] f[8,3] s[8,3] f[6] {groups=3}",
	"batch_norm x[16,31,33,5] f[5] f[5] f[5] s[5] {layout=NHWC}", "batch_norm_grad x[16,31,33,5] x[16,31,33,5] f[5] s[5] f[5] {layout=NHWC}", "batch_norm x[40,5,8,4] f[5] f[5] f[5] s[5]", "batch_norm_grad x[40,5,8,4] x[40,5,8,4] f[5] s[5] f[5]", "batch_norm x[3,2,64,80] f[2] f[2] _ _", "batch_norm_grad x[3,2,64,80] x[3,2,64,80] f[2] s[2] f[2]", "batch_norm_infer x[5,6,8,8] f[6] f[6] f[6] s[6]",
	"batch_norm x[3,170,300] f[300] f[300] _ _ {layout=NHWC}", "group_norm x[8,31,33,6] f[6] f[6] {groups=3 layout=NHWC}", "group_norm_grad x[8,31,33,6] x[8,31,33,6] f[8,3] s[8,3] f[6] {groups=3 layout=NHWC}",
	"max_pool x[8,6,33,31] {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}", "avg_pool_grad x[8,6,17,16] {kernel=[3,3] strides=[2,2] pads=[1,1,1,1] size=[33,31]}", "attention x[2,3,130,24] x[2,3,130,24] x[2,3,130,24] _ {causal}", "rope x[4,300,64] _", "gather x[900,130] k900[1000]", "pad x[200,300] {lo=[2,1] hi=[1,3] mode=reflect}",
	"resize x[2,3,60,70] {sizes=[100,90] mode=linear}", "resize_grad x[2,3,100,90] {sizes=[60,70] mode=linear}", "topk x[300,200] {k=5}", "cumsum x[400,300] {axis=1}", "tril x[4,200,300]", "mse x[300000] x[300000]", "dropout x[300000] K9[] k9[] k3[] {p=0.2 rng=9}",
}
