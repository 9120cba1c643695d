package workload

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Profile is what one iteration of a net costs one worker.
type Profile struct {
	// Name is the built-in profile's name or the file's path.
	Name string
	// Net is what the net calls itself.
	Net string
	// Source says in words where the times come from; it may have several lines.
	Source string
	// Batch is the number of samples of one worker and iteration.
	Batch int
	// Update is the time that the update of all parameters takes.
	Update time.Duration
	// FactorRows is how many rows the sufficient factors of a layer have; 0: Batch.
	FactorRows int
	// Layers are in the order of the forward pass.
	Layers []Layer
}

// K returns how many rows the sufficient factors of a layer have: the samples of a
// batch, unless Shrink has made them fewer.
func (p *Profile) K() int {
	if p.FactorRows > 0 {
		return p.FactorRows
	}
	return p.Batch
}

// Layer is one layer of a profile.
type Layer struct {
	Name, Type string // as in the net's prototxt
	// Params are the numbers of elements (float32) of the parameters that the
	// layer owns and that learn.
	Params []int
	// Rows and Cols are the extents of the first of them where that is the matrix
	// of a layer whose gradient sufficient factors can stand for; 0 elsewhere, and
	// where a file does not say.
	Rows, Cols        int
	Forward, Backward time.Duration
}

// Elements returns the number of elements of all its parameters.
func (l Layer) Elements() int {
	sum := 0
	for _, n := range l.Params {
		sum += n
	}
	return sum
}

// Bounds of a profile: what is beyond is a mistake, and nothing below overflows.
const (
	maxBatch    = 1 << 24
	maxElements = 1 << 36
	maxTime     = 1000 * time.Hour
	maxLayers   = 1 << 16
)

// Validate says what is wrong with a profile, if anything.
func (p *Profile) Validate() error {
	if p.Batch < 1 || p.Batch > maxBatch {
		return fmt.Errorf("batch must be between 1 and %d (got %d)", maxBatch, p.Batch)
	}
	if len(p.Layers) == 0 || len(p.Layers) > maxLayers {
		return fmt.Errorf("number of layers must be between 1 and %d (got %d)", maxLayers, len(p.Layers))
	}
	if p.FactorRows < 0 || p.FactorRows > maxBatch {
		return fmt.Errorf("factor_rows must be between 0 and %d (got %d)", maxBatch, p.FactorRows)
	}
	elements, total := 0, p.Update
	for _, l := range p.Layers {
		if err := l.validate(); err != nil {
			return err
		}
		elements += l.Elements()
		total += l.Forward + l.Backward
		if elements > maxElements || total > maxTime {
			return fmt.Errorf("layer %q: too many parameters or too much computation up to here: %d elements and %v, at most %d and %v", l.Name, elements, total, maxElements, maxTime)
		}
	}
	if p.Update < 0 || total > maxTime {
		return fmt.Errorf("time of the update must be between 0 and %v (got %v)", maxTime, p.Update)
	}
	return nil
}

func (l Layer) validate() error {
	if l.Name == "" || l.Type == "" {
		return fmt.Errorf("layer %q of type %q: missing name or type", l.Name, l.Type)
	}
	for _, n := range l.Params {
		if n < 1 || n > maxElements {
			return fmt.Errorf("layer %q: invalid parameter of %d elements", l.Name, n)
		}
	}
	if l.Rows != 0 || l.Cols != 0 {
		if l.Rows < 1 || l.Cols < 1 || len(l.Params) == 0 || l.Rows > l.Params[0] || l.Cols != l.Params[0]/l.Rows || l.Rows*l.Cols != l.Params[0] {
			return fmt.Errorf("layer %q: a matrix of %dx%d does not have the first parameter's elements %v", l.Name, l.Rows, l.Cols, l.Params)
		}
	}
	if l.Forward < 0 || l.Backward < 0 || l.Forward > maxTime || l.Backward > maxTime {
		return fmt.Errorf("layer %q: forward and backward times must be between 0 and %v (got %v and %v)", l.Name, maxTime, l.Forward, l.Backward)
	}
	return nil
}

// Forward returns the time of the forward pass.
func (p *Profile) Forward() time.Duration {
	return p.sum(func(l Layer) time.Duration { return l.Forward })
}

// Backward returns the time of the backward pass.
func (p *Profile) Backward() time.Duration {
	return p.sum(func(l Layer) time.Duration { return l.Backward })
}

func (p *Profile) sum(f func(Layer) time.Duration) time.Duration {
	var sum time.Duration
	for _, l := range p.Layers {
		sum += f(l)
	}
	return sum
}

// Compute returns the time of all computation: forward, backward and update.
func (p *Profile) Compute() time.Duration { return p.Forward() + p.Backward() + p.Update }

// Elements returns the number of elements of all parameters.
func (p *Profile) Elements() int {
	sum := 0
	for _, l := range p.Layers {
		sum += l.Elements()
	}
	return sum
}

// Bytes returns the size of all parameters, which is that of all gradients.
func (p *Profile) Bytes() int { return 4 * p.Elements() }

// Rate returns the samples per second of one worker that waits for no other, 0
// where the computation takes no time.
func (p *Profile) Rate() float64 {
	if p.Compute() == 0 {
		return 0
	}
	return float64(p.Batch) / p.Compute().Seconds()
}

// Scale returns the profile with all times multiplied by factor: a GPU that is
// so much slower, or another batch.
func (p *Profile) Scale(factor float64) (*Profile, error) {
	if !(factor >= 0) || factor > 1e9 {
		return nil, fmt.Errorf("invalid factor %v of times: want a number between 0 and 1e9", factor)
	}
	q := p.clone()
	by := func(d time.Duration) time.Duration { return time.Duration(math.Round(float64(d) * factor)) }
	q.Update = by(p.Update)
	for i := range q.Layers {
		q.Layers[i].Forward, q.Layers[i].Backward = by(p.Layers[i].Forward), by(p.Layers[i].Backward)
	}
	return q, q.Validate()
}

// Shrink returns the profile with all times and all sizes of parameters
// multiplied by factor, at most 1: the same ratios in less time. The sides of
// matrices, their biases and the rows of factors are multiplied by its root, so that
// factors shrink as matrices do. A parameter keeps at least one element.
func (p *Profile) Shrink(factor float64) (*Profile, error) {
	if !(factor > 0) || factor > 1 {
		return nil, fmt.Errorf("invalid factor %v of sizes: want a number greater than 0 and at most 1", factor)
	}
	q, err := p.Scale(factor)
	if err != nil {
		return nil, err
	}
	by := func(n int, f float64) int { return max(1, int(math.Round(float64(n)*f))) }
	root := math.Sqrt(factor)
	for k := range q.Layers {
		l := &q.Layers[k]
		for i, n := range l.Params {
			f := factor
			if l.Rows > 0 && (n == l.Rows || n == l.Cols) { // a bias, as long as a side
				f = root
			}
			l.Params[i] = by(n, f)
		}
		if l.Rows > 0 {
			l.Rows, l.Cols = by(l.Rows, root), by(l.Cols, root)
			l.Params[0] = l.Rows * l.Cols
			q.FactorRows = by(p.K(), root)
		}
	}
	return q, nil
}

func (p *Profile) clone() *Profile {
	q := *p
	q.Layers = slices.Clone(p.Layers)
	for i := range q.Layers {
		q.Layers[i].Params = slices.Clone(q.Layers[i].Params)
	}
	return &q
}
