package gpucheck

import (
	"context"
	"errors"
	"fmt"
)

// benchmarks compares osu_reduce on the GPU's memory with a copy down, the MPI library's on the host, and a copy up.
func (c *Check) benchmarks(ctx context.Context) {
	for _, n := range []int{2, 4, 8} {
		for _, mib := range []int{1, 16, 256} {
			what := fmt.Sprintf("osu_reduce -d cuda, %d processes, %d MiB", n, mib)
			const target = "≤ 0.7 × copy down, MPI_Reduce, copy up"
			if ctx.Err() != nil || !c.processes(what, target) {
				return
			}
			args := append(c.message(mib<<20), "-M", "4G", "-i", "7", "-x", "2")
			own, err := c.osu(ctx, nil, c.mpirun(n, "osu_reduce", append(args, "-d", "cuda")...)...)
			host, err2 := c.osu(ctx, nil, c.mpirun(n, "osu_reduce", append(args, "--algorithm", "mpi")...)...)
			switch err := errors.Join(err, err2); {
			case err != nil:
				c.failed(what, target, err)
			case c.rates.down == 0 || c.rates.up == 0:
				c.skipped(what, target, "the copies have not been measured")
			default:
				// All ranks' copies go over the one GPU's bus; the root's goes up.
				bytes := float64(mib << 20)
				staged := 1e6*(float64(n)*bytes/c.rates.down+bytes/c.rates.up) + host[0].Max
				c.ratio(what, ms(own[0].Max), own[0].Max/staged, false, 0.7, "× copy down, MPI_Reduce, copy up")
			}
		}
	}
	for _, program := range []string{"osu_allreduce", "osu_bcast"} {
		rows, err := c.osu(ctx, nil, c.mpirun(4, program, append(c.message(64<<20), "-M", "4G", "-d", "cuda", "-i", "7", "-x", "2")...)...)
		if what := program + " -d cuda, 4 processes, 64 MiB"; err != nil {
			c.failed(what, "", err)
		} else {
			c.add(Row{What: what, Value: ms(rows[0].Max), Result: measured})
		}
	}
	c.chains(ctx)
	c.skipped("osu_reduce against a CUDA-aware library's own", "≤ 1.0 ×", "the archive's MPI is not CUDA-aware")
}

// chains compares a chunked chain with a binomial tree: "for buffer sizes greater than eight megabytes (8M) … chunked chain (CC) performs much better"
// on up to eight GPUs (S-Caffe, section 5).
func (c *Check) chains(ctx context.Context) {
	const what, target = "a chunked chain of 8 ranks, 64 MiB", "≤ 1 × a binomial tree (S-Caffe, section 5)"
	rows, err := c.osu(ctx, nil, c.local(8, "osu_reduce", append(c.message(64<<20), "-M", "4G", "-d", "cuda", "-i", "7", "-x", "2", "--algorithm", "chain,chunk=4M,binomial")...)...)
	switch {
	case err != nil:
		c.failed(what, target, err)
	case len(rows) != 2:
		c.failed(what, target, fmt.Errorf("%d rows, not 2", len(rows)))
	default:
		c.ratio(what, ms(rows[0].Max), rows[0].Max/rows[1].Max, false, 1, "× a binomial tree (S-Caffe, section 5)")
	}
}
