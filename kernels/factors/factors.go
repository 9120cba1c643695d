package factors

import (
	"fmt"
	"math"

	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/kernels/vec"
)

// Shape is that of a matrix of weights.
type Shape struct {
	// Out is the number of the layer's outputs, the elements of a row of u; In
	// that of its inputs, those of a row of v.
	Out, In int
	// Transposed says that the weights are stored as In×Out instead of Out×In.
	Transposed bool
}

// Row is how many elements a row of both factors has.
func (s Shape) Row() int { return s.Out + s.In }

// Stack is the layout of the factors of all parts of a batch, with what
// rebuilding needs. It serves one goroutine at a time.
type Stack struct {
	Shape
	rows   []int // of each pass of a part
	begin  []int // the first row of a part; then the number of all rows
	passes int

	tile, sums, ones []float32
}

// Extents of a tile of the result, in elements: 256 KiB, which lie in a core's
// own cache while all parts are added, and are enough for a product to be fast.
const (
	tileRows = 128
	tileCols = 512
)

// NewStack returns the layout where part i has rows[i] rows in each of passes
// passes.
func NewStack(s Shape, rows []int, passes int) (*Stack, error) {
	if s.Out < 1 || s.In < 1 || passes < 1 {
		return nil, fmt.Errorf("factors: want weights of at least 1×1 and at least 1 pass (got %d×%d and %d)", s.Out, s.In, passes)
	}
	st := &Stack{Shape: s, rows: rows, passes: passes, begin: []int{0}}
	most, all := 0, 0
	for i, n := range rows {
		if n < 0 {
			return nil, fmt.Errorf("factors: part %d has %d rows", i, n)
		}
		most = max(most, n)
		all += n * passes
		st.begin = append(st.begin, all)
	}
	st.tile = make([]float32, tileRows*tileCols)
	st.sums = make([]float32, s.Out)
	st.ones = make([]float32, most)
	for i := range st.ones {
		st.ones[i] = 1
	}
	return st, nil
}

// Len is how many elements the factors of all parts have.
func (s *Stack) Len() int { return s.begin[len(s.rows)] * s.Row() }

// Part returns where the factors of part i lie: n elements from off on.
func (s *Stack) Part(i int) (off, n int) {
	return s.begin[i] * s.Row(), (s.begin[i+1] - s.begin[i]) * s.Row()
}

// Put writes the factors of one pass of part i to their place.
func (s *Stack) Put(stacked []float32, i, pass int, u, v []float32) {
	at := stacked[(s.begin[i]+pass*s.rows[i])*s.Row():]
	for k := range s.rows[i] {
		row := at[k*s.Row():][:s.Row()]
		copy(row[:s.Out], u[k*s.Out:])
		copy(row[s.Out:], v[k*s.In:])
	}
}

// Rebuild writes the gradients of the weights, and of the bias unless it is nil,
// that the factors of all parts amount to. It allocates nothing.
func (s *Stack) Rebuild(stacked, weights, bias []float32) error {
	if n := s.begin[len(s.rows)]; len(stacked) != s.Len() || len(weights) != s.Out*s.In || bias != nil && len(bias) != s.Out {
		return fmt.Errorf("factors: %d rows of %d×%d do not fit %d elements, weights of %d and a bias of %d", n, s.Out, s.In, len(stacked), len(weights), len(bias))
	}
	if bias != nil {
		s.bias(stacked, bias)
	}
	rows, cols := s.stored()
	for i := 0; i < rows; i += tileRows {
		for j := 0; j < cols; j += tileCols {
			if err := s.rebuild(stacked, weights[i*cols+j:], s.tileAt(i, j), cols); err != nil {
				return err
			}
		}
	}
	return nil
}

// stored returns the extents of the weights as they lie in memory.
func (s *Stack) stored() (rows, cols int) {
	if s.Transposed {
		return s.In, s.Out
	}
	return s.Out, s.In
}

// tileAt returns the tile that begins at an element of the result.
func (s *Stack) tileAt(row, col int) tile {
	rows, cols := s.stored()
	return tile{row: row, col: col, rows: min(tileRows, rows-row), cols: min(tileCols, cols-col)}
}

// Digest returns a number that is equal in processes whose Rebuild gives equal bits:
// a digest of what it makes of made-up factors, in tiles of every size that the weights
// have, and in the bias.
func (s *Stack) Digest() (uint64, error) {
	stacked := make([]float32, s.Len())
	for i := range stacked { // with all bits, so that other orders of additions round otherwise
		h := (uint32(i) + 1) * 2654435761
		h = (h ^ h>>15) * 2246822519
		stacked[i] = float32(int32(h^h>>13)) / (1 << 31)
	}
	bias := make([]float32, s.Out)
	s.bias(stacked, bias)
	d := uint64(digestOffset)
	d = digest(d, bias)
	rows, cols := s.stored()
	scratch := make([]float32, min(tileRows, rows)*cols)
	for _, i := range ends(rows, tileRows) {
		for _, j := range ends(cols, tileCols) {
			t := s.tileAt(i, j)
			if err := s.rebuild(stacked, scratch[j:], t, cols); err != nil {
				return 0, err
			}
			for r := range t.rows {
				d = digest(d, scratch[r*cols+j:][:t.cols])
			}
		}
	}
	return d, nil
}

// ends returns where the first and the last of the pieces of n elements begin.
func ends(n, piece int) []int {
	if last := (n - 1) / piece * piece; last > 0 {
		return []int{0, last}
	}
	return []int{0}
}

// FNV-1a's numbers, of 64 bits.
const (
	digestOffset = 14695981039346656037
	digestPrime  = 1099511628211
)

// digest adds the bits of values to a digest.
func digest(d uint64, values []float32) uint64 {
	for _, x := range values {
		d = (d ^ uint64(math.Float32bits(x))) * digestPrime
	}
	return d
}

// Digest returns a number that is equal for values of equal bits.
func Digest(values []float32) uint64 { return digest(digestOffset, values) }

// tile is a part of the result.
type tile struct{ row, col, rows, cols int }

// rebuild writes one tile of the weights' gradient to out, its rows cols elements
// apart: the first part's product at once, the others' by way of s.tile.
func (s *Stack) rebuild(stacked, out []float32, t tile, cols int) error {
	first := true
	for i, n := range s.rows {
		if n == 0 {
			continue
		}
		dst, apart := out, cols
		if !first {
			dst, apart = s.tile, t.cols
		}
		if err := s.product(stacked, i, t, dst, apart); err != nil {
			return err
		}
		if !first {
			for r := range t.rows {
				row := out[r*cols:][:t.cols]
				vec.Add(row, row, s.tile[r*t.cols:][:t.cols])
			}
		}
		first = false
	}
	if first {
		for r := range t.rows {
			clear(out[r*cols:][:t.cols])
		}
	}
	return nil
}

// product writes what part i adds to a tile, pass after pass.
func (s *Stack) product(stacked []float32, i int, t tile, dst []float32, apart int) error {
	left, right := 0, s.Out // of the result, in a row
	if s.Transposed {
		left, right = right, left
	}
	n, row := s.rows[i], s.Row()
	for pass := range s.passes {
		at := stacked[(s.begin[i]+pass*n)*row:]
		err := dnn.Product(true, false, t.rows, t.cols, n, at[left+t.row:], row, at[right+t.col:], row, float32(min(pass, 1)), dst, apart)
		if err != nil {
			return err
		}
	}
	return nil
}

// bias writes the sums of the rows of u.
func (s *Stack) bias(stacked, bias []float32) {
	dst := bias
	for i, n := range s.rows {
		if n == 0 {
			continue
		}
		for pass := range s.passes {
			at := stacked[(s.begin[i]+pass*n)*s.Row():]
			blas.Gemv(true, n, s.Out, 1, at, s.Row(), s.ones[:n], float32(min(pass, 1)), dst)
		}
		if &dst[0] != &bias[0] {
			vec.Add(bias, bias, dst)
		}
		dst = s.sums
	}
	if &dst[0] == &bias[0] {
		clear(bias)
	}
}
