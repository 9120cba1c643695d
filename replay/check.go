package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// checker makes gradients that are unique in rank, element and iteration, small
// whole numbers that every order of addition sums exactly, and knows what must
// come of them. The update adds the sum to the parameter. Of layers whose factors travel
// it makes the factors.
type checker struct {
	rank, size int // the worker's number, of so many; below 0 for a rank that only serves
	here       int // the rank, for messages
	data, diff []float32
	layers     []exchange.Layer
	want       []float32 // the parameters after the iterations so far
	u, v       []float32 // factors of one layer
	lossy      map[int]*lossy
	sparse     map[int]*sparse // by where a parameter begins
	sparsity   float64
	updated    map[int]bool // layers whose sums were verified as those of dgc
}

// gradientBits is how many bits a gradient has.
const gradientBits = 6

func newChecker(rank, size int, b buffers, layers []exchange.Layer) *checker {
	c := &checker{rank: rank, size: size, here: rank, data: mem.Float32s(b.data), diff: mem.Float32s(b.diff), layers: layers}
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

// of is a rank's gradient of element i of a layer in an iteration.
func (c *checker) of(layer, rank, i, iter int) float32 {
	if m := c.layers[layer].Factors; m != nil && m.Put != nil {
		return product(m, rank, i, iter)
	}
	return gradient(rank, i, iter)
}

// product is what a rank's factors amount to for element i. In every output's column of u
// all rows but one are zero, so that it is one product.
func product(m *sfb.Matrix, rank, i, iter int) float32 {
	if i >= m.Weights.End() {
		return factor(rank, i-m.Bias.Off, iter)
	}
	i -= m.Weights.Off
	out, in := i/m.Shape.In, i%m.Shape.In
	if m.Shape.Transposed {
		out, in = i%m.Shape.Out, i/m.Shape.Out
	}
	return factor(rank, out, iter) * factor(rank, input(m, rowOf(m, rank, out), in), iter)
}

// factor is a number from 1 to 7, so that a product has no more than gradientBits.
func factor(rank, i, iter int) float32 { return 1 + float32(int(gradient(rank, i, iter))%7) }

// rowOf is the row of a rank's u in which an output is not zero; input is the number of an
// element of v, after those of u.
func rowOf(m *sfb.Matrix, rank, out int) int { return out % m.Rows[rank] }
func input(m *sfb.Matrix, row, in int) int   { return m.Shape.Out + row*m.Shape.In + in }

// put writes a layer's factors.
func (c *checker) put(layer, iter int, s *factors.Stack, stacked []float32, part, pass int) {
	m := c.layers[layer].Factors
	rows := m.Rows[c.rank]
	c.u, c.v = slices.Grow(c.u[:0], rows*m.Shape.Out)[:rows*m.Shape.Out], slices.Grow(c.v[:0], rows*m.Shape.In)[:rows*m.Shape.In]
	clear(c.u)
	for out := range m.Shape.Out {
		c.u[rowOf(m, c.rank, out)*m.Shape.Out+out] = factor(c.rank, out, iter)
	}
	for row := range rows {
		for in := range m.Shape.In {
			c.v[row*m.Shape.In+in] = factor(c.rank, input(m, row, in), iter)
		}
	}
	s.Put(stacked, part, pass, c.u, c.v)
}

func (c *checker) sum(layer, i, iter int) float32 {
	var s float32
	for r := range c.size {
		s += c.of(layer, r, i, iter)
	}
	return s
}

// backward writes a layer's gradients, unless its factors travel (put).
func (c *checker) backward(layer, iter int) {
	if m := c.layers[layer].Factors; m != nil && m.Put != nil {
		return
	}
	for _, p := range c.layers[layer].Params {
		for i := p.Off; i < p.End(); i++ {
			c.diff[i] = gradient(c.rank, i, iter)
		}
	}
}

// update verifies the sums of a part of a bucket and adds them to the parameters.
func (c *checker) update(s exchange.Sum, iter int) error {
	if s.Bucket.Scheme == exchange.DGC {
		return c.updateSparse(s, iter)
	}
	for _, l := range s.Bucket.Layers {
		quantised := c.quantised(l, iter)
		for _, p := range c.layers[l].Params {
			for i := max(p.Off, s.Off); i < min(p.End(), s.End()); i++ {
				want := c.sum(l, i, iter)
				if m := c.layers[l].Factors; quantised != nil && i >= m.Weights.Off && i < m.Weights.End() {
					want = quantised[i-m.Weights.Off]
					c.want[i] += want
				}
				if c.diff[i] != want {
					return fmt.Errorf("replay: iteration %d: the sum of gradient %d (layer %q) is %v at rank %d, not %v", iter, i, c.layers[l].Name, c.diff[i], c.here, want)
				}
				c.data[i] += c.diff[i]
			}
		}
	}
	return nil
}

// begin starts anew with the layers of a plan, none of whose gradients were left out before.
func (c *checker) begin(layers []exchange.Layer) {
	c.layers, c.lossy, c.sparse = layers, map[int]*lossy{}, map[int]*sparse{}
	c.updated = map[int]bool{}
}

// lossy is a layer whose gradients are quantised: what every rank would leave out, and the owners
// of the sums, and what comes of it.
type lossy struct {
	residual [][]float32 // of ranks, then of the sums
	sums     []float32
}

// quantised returns the sums of a layer's weights' gradients in the next iteration as onebit makes
// them, nil for a layer that goes otherwise. It is the plain reference: element by element.
func (c *checker) quantised(layer, iter int) []float32 {
	m := c.layers[layer].Factors
	if m == nil || m.Put != nil {
		return nil
	}
	l := c.lossy[layer]
	if l == nil {
		l = &lossy{sums: make([]float32, m.Weights.Len)}
		for range c.size + 1 {
			l.residual = append(l.residual, make([]float32, m.Weights.Len))
		}
		c.lossy[layer] = l
	}
	cols := m.Shape.In
	if m.Shape.Transposed {
		cols = m.Shape.Out
	}
	column := make([]float32, m.Weights.Len/cols)
	for j := range cols {
		clear(column)
		for r := range c.size {
			own := make([]float32, len(column))
			for row := range own {
				own[row] = gradient(r, m.Weights.Off+row*cols+j, iter)
			}
			quantise(own, l.residual[r][j:], cols)
			for row, x := range own {
				column[row] += x
			}
		}
		quantise(column, l.residual[c.size][j:], cols)
		for row, x := range column {
			l.sums[row*cols+j] = x
		}
	}
	return l.sums
}

// quantise puts in the place of a column's values + residual the means of those of the same
// sign, and what that leaves out in the place of the residual, whose elements are cols apart.
func quantise(column, residual []float32, cols int) {
	var mean, n [2]float32
	sign := func(x float32) int {
		if x < 0 {
			return 1
		}
		return 0
	}
	for row := range column {
		column[row] += residual[row*cols]
		mean[sign(column[row])] += column[row]
		n[sign(column[row])]++
	}
	for k := range mean {
		if n[k] > 0 {
			mean[k] /= n[k]
		}
	}
	for row, x := range column {
		column[row] = mean[sign(x)]
		residual[row*cols] = x - column[row]
	}
}

// verify compares the parameters after iterations [first, end).
func (c *checker) verify(by string, first, end int) error {
	for k, l := range c.layers {
		for _, p := range l.Params {
			for i := p.Off; i < p.End(); i++ {
				m := l.Factors
				known := c.updated[k] || m != nil && m.Put == nil && i >= m.Weights.Off && i < m.Weights.End() // by the updates, which were verified
				for iter := first; iter < end && !known; iter++ {
					c.want[i] += c.sum(k, i, iter)
				}
				if c.data[i] != c.want[i] {
					return fmt.Errorf("replay: after iteration %d by %s parameter %d (layer %q) is %v at rank %d, not %v", end-1, by, i, l.Name, c.data[i], c.here, c.want[i])
				}
			}
		}
	}
	return nil
}

// sparse is a parameter that goes by dgc: what every rank holds back of it, as velocity and accumulated.
type sparse struct{ u, v [][]float32 }

// updateSparse is update for a bucket that goes by dgc. It is the plain reference, which sorts.
func (c *checker) updateSparse(s exchange.Sum, iter int) error {
	for _, l := range s.Bucket.Layers {
		c.updated[l] = true
		for _, p := range c.layers[l].Params {
			for i, want := range c.sumSparse(p, iter) {
				at := p.Off + i
				if c.diff[at] != want {
					return fmt.Errorf("replay: iteration %d: the sum of gradient %d (layer %q, by dgc) is %v at rank %d, not %v", iter, at, c.layers[l].Name, c.diff[at], c.here, want)
				}
				c.data[at] += want
				c.want[at] += want
			}
		}
	}
	return nil
}

// sumSparse returns what all ranks send of a parameter in the next iteration.
func (c *checker) sumSparse(p exchange.Range, iter int) []float32 {
	held := c.sparse[p.Off]
	if held == nil {
		held = &sparse{}
		for range c.size {
			held.u, held.v = append(held.u, make([]float32, p.Len)), append(held.v, make([]float32, p.Len))
		}
		c.sparse[p.Off] = held
	}
	sums, order := make([]float32, p.Len), make([]int, p.Len)
	for r := range c.size {
		u, v := held.u[r], held.v[r]
		for i := range order {
			order[i] = i
			u[i] *= momentum
			u[i] += gradient(r, p.Off+i, iter)
			v[i] += u[i]
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(math.Abs(float64(v[b])), math.Abs(float64(v[a]))) })
		for _, i := range order[:coordinator.Count(p.Len, c.sparsity)] {
			sums[i] += v[i]
			u[i], v[i] = 0, 0
		}
	}
	return sums
}
