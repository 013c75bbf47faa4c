// Package fit runs the loop around an ampc.Step: epochs of a data.Loader, evaluation,
// early stopping, checkpoints, resuming, logs.
//
//	run := fit.Run{
//		Model: m, Step: step, Data: train, Epochs: 10,
//		Eval: &fit.Evaluation{Step: eval, Data: held, Metrics: []fit.Metric{fit.Mean("loss", loss), fit.Accuracy("accuracy", logits, "y")}},
//		Folder: "out", Resume: true,
//	}
//	summary, err := run.Fit(ctx)
//
// A run that is stopped, at whatever step, and resumed from its last checkpoint computes
// the same bits as one that was not. The step stays usable by itself: Run calls nothing
// that a loop of one's own could not.
package fit
