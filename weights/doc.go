// Package weights loads the parameters of a model from the files that other systems
// write, and writes files that they read: safetensors in one file or in shards with
// an index, NumPy's npz, and the zip files of torch.save.
//
//	report, err := weights.Load(m, "resnet.pt", weights.PyTorch())
//
// Names in a file are mapped to the model's by rules. Load compares names and shapes
// of everything first; where something is missing, left over or differs and no
// option allows it, it changes nothing and says what it found. The Report has the
// details in either case.
//
// Files are mapped into memory: dense f32 tensors go from the file to the model
// without a copy between. Nothing in a file is run.
package weights
