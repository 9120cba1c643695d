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
// The results have the same bits on all processors, with AVX2 or without: sums go down the rows, and each
// product and sum is rounded by itself.
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
	positive   []float32 // by column of a block: sums, then means
	negative   []float32
	negatives  []uint32 // how many elements are
	bad        []bool   // columns with a mean that is not finite
	anyBad     bool
}

// bitsPerWord is how many elements a word of codes has.
const bitsPerWord = 32

// New returns the matrix of a shape.
func New(rows, cols int) (*Matrix, error) {
	if rows < 1 || cols < 1 {
		return nil, fmt.Errorf("onebit: want a matrix of at least 1×1 (got %d×%d)", rows, cols)
	}
	n := min(cols, mostBlock)
	return &Matrix{
		Rows: rows, Cols: cols, positive: make([]float32, n), negative: make([]float32, n),
		negatives: make([]uint32, n), bad: make([]bool, n),
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

// mostBlock is how many columns are gone through at a time: what is kept of so many lies in a near
// cache, and a call of a loop, in which the runtime cannot stop a goroutine, ends soon. Blocks so narrow that the
// values of all rows stay in a cache would be slower: memory likes long rows.
const mostBlock = 1 << 14

// Quantise writes the codes of the columns from … to-1 of values + residual, and what they
// leave out to residual. Both have all of the matrix. Where a column has a value that is not
// finite, so has what its codes stand for, and its residual stays as it is.
func (m *Matrix) Quantise(codes []int32, from, to int, values, residual []float32) {
	n := to - from
	for at := 0; at < n; at += mostBlock {
		cols := min(mostBlock, n-at)
		m.means(codes[at:], codes[n+at:], from+at, cols, values, residual)
		m.code(codes[2*n+at/bitsPerWord:], words(n), from+at, cols, values, residual)
	}
}

// means finds what the bits of n columns stand for, from the given one on, and writes that.
func (m *Matrix) means(positive, negative []int32, from, n int, values, residual []float32) {
	pos, neg, count := m.positive[:n], m.negative[:n], m.negatives[:n]
	clear(pos)
	clear(neg)
	clear(count)
	for r := range m.Rows {
		at := r*m.Cols + from
		sums(pos, neg, count, values[at:at+n], residual[at:at+n], m.next(r, n))
	}
	m.anyBad = false
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
			m.anyBad = true
		}
		positive[j], negative[j] = int32(math.Float32bits(pos[j])), int32(math.Float32bits(neg[j]))
	}
}

// code writes the bits of n columns whose means are known, from the given one on, to words of
// which a row has so many, and what they leave out.
func (m *Matrix) code(bits []int32, perRow, from, n int, values, residual []float32) {
	pos, neg := m.positive[:n], m.negative[:n]
	for r := range m.Rows {
		at := r*m.Cols + from
		v, d, row := values[at:at+n], residual[at:at+n], bits[r*perRow:][:words(n)]
		if m.anyBad {
			m.packKeeping(row, pos, neg, v, d)
		} else {
			pack(row, pos, neg, v, d, m.next(r, n))
		}
	}
}

// next is how many bytes on from n columns of a row the loops ask for those of the next one; 0 where
// there is none, or it follows at once, as the processor sees by itself.
func (m *Matrix) next(row, n int) int {
	if row+1 == m.Rows || n == m.Cols {
		return 0
	}
	return 4 * m.Cols
}

func finite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }

// sums adds a row to the columns' sums.
func sums(pos, neg []float32, count []uint32, v, d []float32, next int) {
	n := whole(len(v))
	if n > 0 {
		sumsF32s(&pos[0], &neg[0], &count[0], &v[0], &d[0], n, next)
	}
	sumsPortable(pos[n:], neg[n:], count[n:], v[n:], d[n:])
}

// sumsPortable is without branches: signs are as good as random.
func sumsPortable(pos, neg []float32, count []uint32, v, d []float32) {
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
func pack(bits []int32, pos, neg, v, d []float32, next int) {
	n := whole(len(v))
	if n > 0 {
		packF32s(&bits[0], &pos[0], &neg[0], &v[0], &d[0], n, next)
	}
	packPortable(bits[n/bitsPerWord:], pos[n:], neg[n:], v[n:], d[n:])
}

func packPortable(bits []int32, pos, neg, v, d []float32) {
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
	n := to - from
	for at := 0; at < n; at += mostBlock {
		cols := min(mostBlock, n-at)
		pos, neg := m.positive[:cols], m.negative[:cols]
		for j := range pos {
			pos[j], neg[j] = math.Float32frombits(uint32(codes[at+j])), math.Float32frombits(uint32(codes[n+at+j]))
		}
		bits := codes[2*n+at/bitsPerWord:]
		for r := range m.Rows {
			v, row := values[r*m.Cols+from+at:][:cols], bits[r*words(n):][:words(cols)]
			if add {
				addRow(v, pos, neg, row, m.next(r, cols))
			} else {
				setRow(v, pos, neg, row, m.next(r, cols))
			}
		}
	}
}

// setRow writes what the bits of a row stand for.
func setRow(v, pos, neg []float32, bits []int32, next int) {
	n := whole(len(v))
	if n > 0 {
		setF32s(&v[0], &pos[0], &neg[0], &bits[0], n, next)
	}
	setRowPortable(v[n:], pos[n:], neg[n:], bits[n/bitsPerWord:])
}

func setRowPortable(v, pos, neg []float32, bits []int32) {
	for k, word := range bits {
		at := k * bitsPerWord
		end := min(at+bitsPerWord, len(v))
		v, pos, neg := v[at:end], pos[at:end], neg[at:end]
		for j := range v {
			v[j] = choose(pos[j], neg[j], uint32(word), j)
		}
	}
}

// addRow adds what the bits of a row stand for.
func addRow(v, pos, neg []float32, bits []int32, next int) {
	n := whole(len(v))
	if n > 0 {
		addF32s(&v[0], &pos[0], &neg[0], &bits[0], n, next)
	}
	addRowPortable(v[n:], pos[n:], neg[n:], bits[n/bitsPerWord:])
}

func addRowPortable(v, pos, neg []float32, bits []int32) {
	for k, word := range bits {
		at := k * bitsPerWord
		end := min(at+bitsPerWord, len(v))
		v, pos, neg := v[at:end], pos[at:end], neg[at:end]
		for j := range v {
			v[j] += choose(pos[j], neg[j], uint32(word), j)
		}
	}
}

// choose returns what bit j of a word stands for.
func choose(pos, neg float32, word uint32, j int) float32 {
	p, q := math.Float32bits(pos), math.Float32bits(neg)
	return math.Float32frombits(p ^ (p^q)&-(word>>(j&31)&1))
}
