// Package gpucheck checks on a machine with a GPU what has been proven without one: facts of the device, every kernel's bits,
// bandwidths against a copy's, the conformance suites, collectives and benchmarks of ranks that share the GPU, training against the CPU's, and
// errors. It starts the programs and tests of an archive (scripts/gpu-check) one after another, and measures some itself.
//
//	c := &gpucheck.Check{Root: "scaffe-gpu-check", Dir: "results"}
//	err := c.Run(ctx) // results/report.md, which grows as it goes
//
// Each line of the report is a Row, with the target beside it. What has not been run stands there as not run, with the reason; a run that
// is stopped keeps what it has. What the machine may have besides, PyTorch and MPS, is looked for; what must be undone is done by a process beside
// the check (Beside). Over the driver's stand-in everything is run on small sizes, and no number is reported.
//
// It must not know how anything that it starts works.
package gpucheck
