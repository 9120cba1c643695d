package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// rates are what copies move, in bytes a second: on the device, down and up. A copy on the device counts what is read and written.
type rates struct{ device, down, up float64 }

// within bounds a wait for the GPU.
const within = time.Minute

// sizes are those of the measurements, small over the stand-in.
func (c *Check) size(n int) int {
	if c.standIn {
		return min(n, 1<<20)
	}
	return n
}

// bandwidth compares kernels with the driver's own copy, in the same process.
func (c *Check) bandwidth(ctx context.Context) {
	if err := c.measure(ctx); err != nil {
		c.failed("bandwidth", "", err)
	}
}

func (c *Check) measure(ctx context.Context) (err error) {
	d, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n := c.size(256 << 20)
	var buffers [3]mem.Buffer
	for i := range buffers {
		if buffers[i], err = d.Alloc(n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(buffers[i])) }()
	}
	host, err := d.AllocHost(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.FreeHost(host)) }()
	clear(mem.Bytes(host))
	dst, a, b := buffers[0], buffers[1], buffers[2]
	if err := errors.Join(s.Copy(a, host), s.Copy(b, host)); err != nil {
		return err
	}
	begin, err := d.NewTimer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, begin.Close()) }()
	end, err := d.NewTimer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	// rate is the bytes a second of what f puts on the stream, a number of times, by the GPU's clock: the median of some.
	rate := func(bytes int, f func() error) (float64, error) {
		const times, rounds = 8, 5
		var all []float64
		for range rounds + 1 {
			if err := errors.Join(ctx.Err(), s.Record(begin)); err != nil {
				return 0, err
			}
			for range times {
				if err := f(); err != nil {
					return 0, err
				}
			}
			if err := errors.Join(s.Record(end), s.Synchronize(within)); err != nil {
				return 0, err
			}
			took, err := end.Since(begin)
			if err != nil {
				return 0, err
			}
			all = append(all, float64(times*bytes)/took.Seconds())
		}
		all = all[1:] // the first is a warm-up
		slices.Sort(all)
		return all[rounds/2], nil
	}
	if c.rates.device, err = rate(2*n, func() error { return s.CopyByDriver(dst, a) }); err != nil {
		return err
	}
	c.add(Row{What: fmt.Sprintf("the driver's copy on the device, %d MiB", n>>20), Value: gbs(c.rates.device), Result: measured})
	if c.rates.down, err = rate(n, func() error { return s.Copy(host, a) }); err != nil {
		return err
	}
	c.add(Row{What: "copy down to pinned memory", Value: gbs(c.rates.down), Result: measured})
	if c.rates.up, err = rate(n, func() error { return s.Copy(a, host) }); err != nil {
		return err
	}
	c.add(Row{What: "copy up from pinned memory", Value: gbs(c.rates.up), Result: measured})
	v, err := rate(2*n, func() error { return s.Copy(dst, a) })
	if err != nil {
		return err
	}
	c.add(Row{What: "the kernel copy", Value: gbs(v), Ratio: fmt.Sprintf("%.3g", v/c.rates.device), Result: measured})
	for _, dt := range []mem.Datatype{mem.Float32, mem.Float16, mem.BFloat16} {
		for size := c.size(64 << 20); size <= n; size *= 4 {
			v, err := rate(3*size, func() error { return s.Reduce(dt, mem.Sum, dst.Slice(0, size), a.Slice(0, size), b.Slice(0, size)) })
			if err != nil {
				return err
			}
			c.ratio(fmt.Sprintf("sum of %v, %d MiB", dt, size>>20), gbs(v), v/c.rates.device, true, 0.9, "× the driver's copy, bytes read and written")
		}
	}
	size := n / 4
	var parts []mem.Buffer // of different memory
	for at := 0; at < n; at += size {
		parts = append(parts, a.Slice(at, size), b.Slice(at, size))
	}
	for _, count := range []int{4, cuda.Operands} {
		v, err := rate((count+1)*size, func() error { return s.ReduceAll(mem.Float32, mem.Sum, dst.Slice(0, size), parts[:count]) })
		if err != nil {
			return err
		}
		c.ratio(fmt.Sprintf("sum of %d buffers of f32, %d MiB each", count, size>>20), gbs(v), v/c.rates.device, true, 0.9, "× the driver's copy, bytes read and written")
	}
	return c.small(d, dst.Slice(0, 4096), a.Slice(0, 4096), b.Slice(0, 4096))
}

// small measures a sum of 4 KiB from Reduce to Poll.
func (c *Check) small(d *cuda.Device, dst, a, b mem.Buffer) (err error) {
	k, err := kernels.NewCPU()
	if err != nil {
		return err
	}
	e, err := device.CUDA(d, device.CPU(k))
	if err != nil {
		return errors.Join(err, k.Close())
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	const rounds = 201
	var all []time.Duration
	done := make([]nbc.Completion, 1)
	for range rounds {
		start := time.Now()
		ended, err := e.Reduce(1, mem.Float32, mem.Sum, dst, a, b)
		for n := 0; err == nil && !ended && n == 0; {
			if n, err = e.Poll(done); err == nil && n > 0 {
				err = done[0].Err
			}
			if time.Since(start) > within {
				err = cuda.ErrDeadline
			}
		}
		if err != nil {
			return err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	us := float64(all[rounds/2].Nanoseconds()) / 1000
	c.ratio("a sum of 4 KiB, from Reduce to Poll", fmt.Sprintf("%.1f µs", us), us, false, 15, "µs")
	return nil
}

func gbs(v float64) string { return fmt.Sprintf("%.1f GB/s", v/1e9) }
