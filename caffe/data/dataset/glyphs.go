package dataset

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/scaffe/scaffe/caffe/data"
)

// GlyphsOptions says what Glyphs draws.
type GlyphsOptions struct {
	Out
	// TrainSamples and TestSamples are how many to draw; 0 means 20000 and 2000.
	TrainSamples, TestSamples int
	// Seed decides every sample; the sets of a seed are always the same.
	Seed uint64
}

// GlyphShape is the shape of the samples of Glyphs: that of CIFAR-10.
var GlyphShape = data.Shape{C: 3, H: 32, W: 32}

// Glyphs draws the digits 0 to 9 in ten faces of the Go fonts, each sample in
// a size, position, rotation, slant and pair of colors of its own and with
// some noise: a data set in the form of CIFAR-10 (planes red, green, blue)
// that needs no download and that a small net learns in a minute or two.
func Glyphs(o GlyphsOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.TrainSamples == 0 {
		o.TrainSamples = 20000
	}
	if o.TestSamples == 0 {
		o.TestSamples = 2000
	}
	if o.TrainSamples < 0 || o.TestSamples < 0 {
		return fmt.Errorf("dataset: glyphs: %d training and %d test samples: neither can be negative", o.TrainSamples, o.TestSamples)
	}
	fonts, err := loadOutlines()
	if err != nil {
		return fmt.Errorf("dataset: glyphs: %w", err)
	}
	m := &meter{report: o.Progress}
	sets := []struct {
		path string
		n    int
		set  uint64
	}{{o.Train, o.TrainSamples, 1}, {o.Test, o.TestSamples, 2}}
	for _, s := range sets {
		if s.path != "" {
			m.total += s.n
		}
	}
	for _, s := range sets {
		err := write(s.path, o.Force, func(w *data.Writer) error {
			return drawAll(fonts, s.n, func(i int) *rand.Rand {
				return rand.New(rand.NewPCG(o.Seed, s.set<<48|uint64(i)))
			}, func(i int, datum []byte) error {
				m.add()
				return w.Put(fmt.Sprintf("%05d", i), datum)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drawAll draws n samples on all cores and hands them to put in order. Each is
// a function of its own source of random numbers, so that the number of cores
// does not show.
func drawAll(fonts []outlines, n int, source func(i int) *rand.Rand, put func(i int, datum []byte) error) error {
	const block = 256 // samples that a core draws before they are written
	workers := runtime.GOMAXPROCS(0)
	drawn := make([][]byte, workers*block)
	pens := make([]*pen, workers)
	for start := 0; start < n; start += len(drawn) {
		var wg sync.WaitGroup
		for w := range workers {
			if pens[w] == nil {
				pens[w] = newPen(fonts)
			}
			wg.Go(func() {
				for j := w * block; j < (w+1)*block && start+j < n; j++ {
					s := pens[w].draw(source(start + j))
					drawn[j] = data.AppendDatum(drawn[j][:0], s)
				}
			})
		}
		wg.Wait()
		for j := 0; j < len(drawn) && start+j < n; j++ {
			if err := put(start+j, drawn[j]); err != nil {
				return err
			}
		}
	}
	return nil
}
