// Package convert plans how an ONNX model becomes a 16-bit one: which of its
// nodes compute in 16 bits, which weights are stored in them, and where casts
// stand.
//
// The model's own nodes are edited. What the passes decide for the imported
// graph is mapped back to them by position; nothing that was fused or rewritten
// is written. ONNX has no mixed operands and no wider results, so the passes run
// as for an eager system: a product stores 16 bits, a kept op stores f32.
package convert
