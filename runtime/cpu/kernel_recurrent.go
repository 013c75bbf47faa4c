package cpu

// recurrentKernels unroll over time.
var recurrentKernels = map[string]binder{}
