package replay

import (
	"fmt"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
)

// checker makes gradients that are unique in rank, element and iteration, small
// whole numbers that every order of addition sums exactly, and knows what must
// come of them. The update adds the sum to the parameter.
type checker struct {
	rank, size int
	data, diff []float32
	layers     []exchange.Layer
	want       []float32 // the parameters after the iterations so far
}

// gradientBits is how many bits a gradient has.
const gradientBits = 6

func newChecker(rank, size int, b buffers, layers []exchange.Layer) *checker {
	c := &checker{rank: rank, size: size, data: mem.Float32s(b.data), diff: mem.Float32s(b.diff), layers: layers}
	clear(c.data)
	c.want = make([]float32, len(c.data))
	return c
}

// most is how many iterations can be checked: sums are exact up to 2^24.
func (c *checker) most() int { return 1 << 24 / (c.size << gradientBits) }

// gradient is rank's gradient of element i in an iteration.
func gradient(rank, i, iter int) float32 {
	h := uint32(i)*2654435761 + uint32(rank)*2246822519 + uint32(iter)*3266489917
	h ^= h >> 15
	h *= 2654435769
	return float32(h >> (32 - gradientBits))
}

func (c *checker) sum(i, iter int) float32 {
	var s float32
	for r := range c.size {
		s += gradient(r, i, iter)
	}
	return s
}

// backward writes a layer's gradients.
func (c *checker) backward(layer, iter int) {
	for _, p := range c.layers[layer].Params {
		for i := p.Off; i < p.End(); i++ {
			c.diff[i] = gradient(c.rank, i, iter)
		}
	}
}

// update verifies the sums of a part of a bucket and adds them to the parameters.
func (c *checker) update(s exchange.Sum, iter int) error {
	for _, l := range s.Bucket.Layers {
		for _, p := range c.layers[l].Params {
			for i := max(p.Off, s.Off); i < min(p.End(), s.End()); i++ {
				if want := c.sum(i, iter); c.diff[i] != want {
					return fmt.Errorf("replay: iteration %d: the sum of gradient %d (layer %q) is %v at rank %d, not %v", iter, i, c.layers[l].Name, c.diff[i], c.rank, want)
				}
				c.data[i] += c.diff[i]
			}
		}
	}
	return nil
}

// verify compares the parameters after iterations [first, end).
func (c *checker) verify(d exchange.Design, first, end int) error {
	for _, l := range c.layers {
		for _, p := range l.Params {
			for i := p.Off; i < p.End(); i++ {
				for iter := first; iter < end; iter++ {
					c.want[i] += c.sum(i, iter)
				}
				if c.data[i] != c.want[i] {
					return fmt.Errorf("replay: after iteration %d by %v parameter %d (layer %q) is %v at rank %d, not %v", end-1, d, i, l.Name, c.data[i], c.rank, c.want[i])
				}
			}
		}
	}
	return nil
}
