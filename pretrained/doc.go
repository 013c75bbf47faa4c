// Package pretrained builds published architectures from their config.json, with the
// parameter names of the checkpoints that Hugging Face and torchvision publish: GPT-2,
// BERT, the Llama family and ResNet.
//
//	c, err := pretrained.ReadGPT2("gpt2")         // the folder, or its config.json
//	m := ampc.New("gpt2")
//	ids := m.Input("ids", ampc.I32, 1, 64)
//	step, err := m.Infer(ampc.InferConfig{}, c.Logits(m, ids))
//	report, err := weights.Load(m, "gpt2", c.Weights()...)
//
// The variables have the names and shapes of the checkpoint, so weights.Save writes
// files that the original libraries load. A configuration that would change results
// in a way that the architecture here does not have is refused when it is read.
package pretrained
