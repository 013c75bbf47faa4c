package main

// Help texts of flags that several commands share. The help shows the name in backquotes for the
// value.
const (
	policyHelp  = "a policy's `NAME`, or a policy file; ampc policy lists the names"
	setHelp     = "set a `PROPERTY=VALUE` of the policy: one of Apex's (keep_batchnorm_fp32, master_weights, cast_model_outputs, loss_scale, ...) or a switch of a policy file, such as direct=true, which turns Winograd's algorithm off; may be repeated"
	scalerHelp  = "`KIND` of loss scaling: none, dynamic, torch, apex, deepspeed, oneflow, keras, paddle, or a power of two for a fixed scale (default: the policy's)"
	microHelp   = "split each step into `N` micro-batches"
	dimHelp     = "size of a named dimension, as `NAME=SIZE`; may be repeated"
	shapeHelp   = "shape of an input of an ONNX model, as `NAME=SIZE,SIZE,...`; may be repeated"
	arraysHelp  = "`NAME=FILE` of an input of an ONNX model whose shape, or what depends on its elements, the file gives: an .npy file, or an ONNX tensor (.pb); or an .npz or .safetensors file whose arrays have the inputs' names; may be repeated"
	tensorsHelp = "`NAME=FILE` of an input: an .npy file, or an ONNX tensor (.pb); or an .npz or .safetensors file whose arrays have the inputs' names; may be repeated; other inputs are random"
	seedHelp    = "seed of initial parameters and of random inputs"
	deviceHelp  = "`DEVICE` to run on: cpu, cuda:0, cuda (that of this rank), or sim:sm_90 (a simulated GPU, slow)"
)
