// Package onebit quantises matrices to a bit for each value and two values for each
// column, those that the bits stand for (Seide et al., Interspeech 2014, as in CNTK):
//
//	codes := make([]int32, m.Words(from, to))
//	m.Quantise(codes, from, to, values, residual)     // of the columns from … to-1
//	m.Unquantise(values, from, to, codes)             // elsewhere: what the codes stand for
//
// What is quantised is values + residual. A bit says whether an element is negative; what it
// stands for is the mean of the column's negative elements, or that of the others, so that a
// column's sum is kept but for rounding. The difference goes to residual, and with it into the
// next call: nothing is lost, it comes later (error feedback).
//
// The results have the same bits on all processors: sums go down the rows, and each product
// and sum is rounded by itself.
//
// It knows nothing of ranks, layers or messages.
package onebit

import (
	"fmt"
	"math"
)

// Matrix is a matrix's shape, stored row by row, with what quantising needs. It serves one
// goroutine at a time.
type Matrix struct {
	Rows, Cols int
	positive   []float32 // by column: sums, then means
	negative   []float32
	negatives  []uint32 // how many elements are
	bad        []bool   // columns with a mean that is not finite
}

// bitsPerWord is how many elements a word of codes has.
const bitsPerWord = 32

// New returns the matrix of a shape.
func New(rows, cols int) (*Matrix, error) {
	if rows < 1 || cols < 1 {
		return nil, fmt.Errorf("onebit: want a matrix of at least 1×1 (got %d×%d)", rows, cols)
	}
	return &Matrix{
		Rows: rows, Cols: cols, positive: make([]float32, cols), negative: make([]float32, cols),
		negatives: make([]uint32, cols), bad: make([]bool, cols),
	}, nil
}

// Words is how many words the codes of the columns from … to-1 have: two means for each
// column, and for each row a bit for each, rounded up to words.
func (m *Matrix) Words(from, to int) int {
	if from >= to {
		return 0
	}
	return 2*(to-from) + m.Rows*words(to-from)
}

func words(cols int) int { return (cols + bitsPerWord - 1) / bitsPerWord }

// Quantise writes the codes of the columns from … to-1 of values + residual, and what they
// leave out to residual. Both have all of the matrix. Where a column has a value that is not
// finite, so has what its codes stand for, and its residual stays as it is.
func (m *Matrix) Quantise(codes []int32, from, to int, values, residual []float32) {
	if from >= to {
		return
	}
	n := to - from
	pos, neg, count := m.positive[:n], m.negative[:n], m.negatives[:n]
	clear(pos)
	clear(neg)
	clear(count)
	for r := range m.Rows {
		v, d := values[r*m.Cols+from:][:n], residual[r*m.Cols+from:][:n]
		sums(pos, neg, count, v, d)
	}
	anyBad := false
	for j := range pos {
		if rest := uint32(m.Rows) - count[j]; rest > 0 {
			pos[j] /= float32(rest)
		}
		if count[j] > 0 {
			neg[j] /= float32(count[j])
		}
		m.bad[j] = !finite(pos[j]) || !finite(neg[j])
		if m.bad[j] { // whichever it was, the column's values are lost
			pos[j], neg[j] = float32(math.NaN()), float32(math.NaN())
			anyBad = true
		}
		codes[j], codes[n+j] = int32(math.Float32bits(pos[j])), int32(math.Float32bits(neg[j]))
	}
	bits := codes[2*n:]
	per := words(n)
	for r := range m.Rows {
		v, d := values[r*m.Cols+from:][:n], residual[r*m.Cols+from:][:n]
		row := bits[r*per:][:per]
		if anyBad {
			m.packKeeping(row, pos, neg, v, d)
		} else {
			pack(row, pos, neg, v, d)
		}
	}
}

func finite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }

// sums adds a row to the columns' sums, without branches: signs are as good as random.
func sums(pos, neg []float32, count []uint32, v, d []float32) {
	pos, neg, count, d = pos[:len(v)], neg[:len(v)], count[:len(v)], d[:len(v)]
	for j, x := range v {
		b := math.Float32bits(x + d[j])
		sign := uint32(int32(b) >> 31)
		pos[j] += math.Float32frombits(b &^ sign)
		neg[j] += math.Float32frombits(b & sign)
		count[j] += sign & 1
	}
}

// pack writes the bits of a row, and what they leave out.
func pack(bits []int32, pos, neg, v, d []float32) {
	for k := range bits {
		at := k * bitsPerWord
		end := min(at+bitsPerWord, len(v))
		pv, nv, vv, dv := pos[at:end], neg[at:end], v[at:end], d[at:end]
		var word uint32
		for j, x := range vv {
			g := x + dv[j]
			sign := uint32(int32(math.Float32bits(g)) >> 31)
			p, q := math.Float32bits(pv[j]), math.Float32bits(nv[j])
			dv[j] = g - math.Float32frombits(p^(p^q)&sign)
			word |= sign & 1 << (j & 31)
		}
		bits[k] = int32(word)
	}
}

// packKeeping is pack for rows with columns whose residual stays.
func (m *Matrix) packKeeping(bits []int32, pos, neg, v, d []float32) {
	clear(bits)
	for j, x := range v {
		g, mean := x+d[j], pos[j]
		if math.Float32bits(g)>>31 == 1 {
			bits[j/bitsPerWord] |= int32(uint32(1) << (j % bitsPerWord))
			mean = neg[j]
		}
		if !m.bad[j] {
			d[j] = g - mean
		}
	}
}

// Unquantise writes what the codes of the columns from … to-1 stand for to values.
func (m *Matrix) Unquantise(values []float32, from, to int, codes []int32) {
	m.unquantise(values, from, to, codes, false)
}

// Add adds what the codes of the columns from … to-1 stand for to values.
func (m *Matrix) Add(values []float32, from, to int, codes []int32) {
	m.unquantise(values, from, to, codes, true)
}

func (m *Matrix) unquantise(values []float32, from, to int, codes []int32, add bool) {
	if from >= to {
		return
	}
	n := to - from
	pos, neg := m.positive[:n], m.negative[:n]
	for j := range pos {
		pos[j], neg[j] = math.Float32frombits(uint32(codes[j])), math.Float32frombits(uint32(codes[n+j]))
	}
	bits := codes[2*n:]
	per := words(n)
	for r := range m.Rows {
		v, row := values[r*m.Cols+from:][:n], bits[r*per:][:per]
		for k, word := range row {
			at := k * bitsPerWord
			end := min(at+bitsPerWord, n)
			if add {
				addWord(v[at:end], pos[at:end], neg[at:end], uint32(word))
			} else {
				setWord(v[at:end], pos[at:end], neg[at:end], uint32(word))
			}
		}
	}
}

func setWord(v, pos, neg []float32, word uint32) {
	pos, neg = pos[:len(v)], neg[:len(v)]
	for j := range v {
		v[j] = choose(pos[j], neg[j], word, j)
	}
}

func addWord(v, pos, neg []float32, word uint32) {
	pos, neg = pos[:len(v)], neg[:len(v)]
	for j := range v {
		v[j] += choose(pos[j], neg[j], word, j)
	}
}

// choose returns what bit j of a word stands for.
func choose(pos, neg float32, word uint32, j int) float32 {
	p, q := math.Float32bits(pos), math.Float32bits(neg)
	return math.Float32frombits(p ^ (p^q)&-(word>>(j&31)&1))
}
