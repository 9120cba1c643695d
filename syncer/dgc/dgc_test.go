package dgc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// A bucket of three pieces, one of them with fewer elements than are worth a selection.
const elements = 700

var cuts = []int{300, 303}

var pieces = []schedule.Range{{Len: 300}, {Off: 300, Len: 3}, {Off: 303, Len: 397}}

var config = Config{Momentum: 0.5, Sparse: coordinator.Sparse{Sparsity: 0.99, Warmup: 8}}

// gradients are those of a rank in an iteration: small whole numbers, so that sums with a momentum of
// 0.5 are exact in float32 for a dozen iterations, and many magnitudes are equal.
func gradients(diff []float32, rank, iter int) {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(iter)))
	for i := range diff {
		diff[i] = float32(r.IntN(41) - 20)
	}
}

// newSyncer returns the syncer of the bucket, and where its gradients lie.
func newSyncer(c *collectives.Comm, config Config) (*Syncer, []float32, error) {
	b := syncer.Bucket{Name: "fcs", Data: mem.Of(make([]float32, elements)), Diff: mem.Of(make([]float32, elements))}
	if config.Pieces == nil {
		config.Pieces = pieces
	}
	s, err := New(c, b, config)
	return s, mem.Float32s(b.Diff), err
}

// iterate is an iteration: a push and a pull.
func iterate(s *Syncer) error {
	if err := s.Push(); err != nil {
		return err
	}
	part, err := s.Pushed(context.Background())
	if err == nil && part != 0 {
		err = fmt.Errorf("part %d of 1", part)
	}
	return errors.Join(err, s.Pull(part), s.Pulled(context.Background()))
}

// run moves gradients for iterations [from, to) of a run, and returns what every rank has after each, and
// what each holds at last; held, unless nil, is what each holds at first.
func run(t *testing.T, ranks int, seed uint64, config Config, from, to int, held []Held) (sums [][][]float32, left []Held) {
	t.Helper()
	sums, left = make([][][]float32, ranks), make([]Held, ranks)
	collectivestest.Late(t, ranks, seed, func(c *collectives.Comm) error {
		s, diff, err := newSyncer(c, config)
		if err != nil {
			return err
		}
		defer s.Close()
		s.Iteration(from)
		if held != nil {
			copy(s.Held().Velocity, held[c.Rank()].Velocity)
			copy(s.Held().Accumulated, held[c.Rank()].Accumulated)
		}
		for iter := from; iter < to; iter++ {
			gradients(diff, c.Rank(), iter)
			if err := iterate(s); err != nil {
				return err
			}
			sums[c.Rank()] = append(sums[c.Rank()], slices.Clone(diff))
		}
		h := s.Held()
		left[c.Rank()] = Held{slices.Clone(h.Velocity), slices.Clone(h.Accumulated)}
		return nil
	})
	return sums, left
}

// plain is the algorithm in float64, by sorting: Lin et al., section 3, with the
// selection of each piece by itself.
type plain struct{ u, v []float64 }

func (p *plain) iterate(sum []float64, gradient []float32, momentum float64, keep func(n int) int) {
	for i, g := range gradient {
		p.u[i] = momentum*p.u[i] + float64(g)
		p.v[i] += p.u[i]
	}
	from := 0
	for _, to := range append(slices.Clone(cuts), elements) {
		var order []int
		for i := from; i < to; i++ {
			order = append(order, i)
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch x, y := math.Abs(p.v[a]), math.Abs(p.v[b]); {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return 0
		})
		for _, i := range order[:keep(to-from)] {
			sum[i] += p.v[i]
			p.u[i], p.v[i] = 0, 0
		}
		from = to
	}
}

// Lin et al., section 3: momentum correction, factor masking and the sparsities of the warm-up are, on any
// number of ranks and whoever is late, what the definition gives in float64, to the last bit. So replicas are
// equal, and runs repeat bit for bit; what is not sent is held, to the last bit too.
func TestSumsAreThoseOfThePlainAlgorithm(t *testing.T) {
	const iters = 12
	kept := []float64{1. / 4, 1. / 4, 1. / 16, 1. / 16, 1. / 64, 1. / 64, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}
	for _, ranks := range []int{1, 2, 5} {
		all := make([]plain, ranks)
		for r := range all {
			all[r] = plain{make([]float64, elements), make([]float64, elements)}
		}
		var want [][]float64
		own := make([]float32, elements)
		for iter := range iters {
			sum := make([]float64, elements)
			for r := range all {
				gradients(own, r, iter)
				all[r].iterate(sum, own, 0.5, func(n int) int { return max(1, int(math.Ceil(kept[iter]*float64(n)-1e-6))) })
			}
			want = append(want, sum)
		}
		for _, seed := range []uint64{0, 7, 8} {
			sums, left := run(t, ranks, seed, config, 0, iters, nil)
			for r := range ranks {
				for iter := range iters {
					for i, x := range sums[r][iter] {
						if float64(x) != want[iter][i] {
							t.Fatalf("%d ranks, seed %d, rank %d, iteration %d: element %d is %v, not %v", ranks, seed, r, iter, i, x, want[iter][i])
						}
					}
				}
				for i := range elements {
					if float64(left[r].Velocity[i]) != all[r].u[i] || float64(left[r].Accumulated[i]) != all[r].v[i] {
						t.Fatalf("%d ranks, seed %d, rank %d holds %v and %v of element %d, not %v and %v", ranks, seed, r, left[r].Velocity[i], left[r].Accumulated[i], i, all[r].u[i], all[r].v[i])
					}
				}
			}
		}
	}
}

// Without momentum, what was handed out and what all hold are together what was put in.
func TestNothingIsLost(t *testing.T) {
	const ranks, iters = 3, 12
	c := config
	c.Momentum = 0
	sums, left := run(t, ranks, 0, c, 0, iters, nil)
	in, out := make([]float32, elements), make([]float32, elements)
	own := make([]float32, elements)
	for iter := range iters {
		for r := range ranks {
			gradients(own, r, iter)
			for i, x := range own {
				in[i] += x
			}
		}
		for i, x := range sums[0][iter] {
			out[i] += x
		}
	}
	held := 0
	for r := range ranks {
		for i, x := range left[r].Accumulated {
			out[i] += x
			if x != 0 {
				held++
			}
		}
	}
	if !slices.Equal(in, out) {
		t.Error("what was handed out and what is held are not what was put in")
	}
	if held == 0 {
		t.Error("nothing is held: the test shows nothing")
	}
}

// Lin et al., section 3.2, momentum correction: a gradient that is held for T iterations is sent as what it
// would have moved the parameters by in as many: g·(1 + m + … + m^(T-1)).
func TestHeldGradientsHaveTheirMomentum(t *testing.T) {
	c := Config{Momentum: 0.5, Sparse: coordinator.Sparse{Sparsity: 0.999}} // one of each piece
	collectivestest.Late(t, 2, 0, func(comm *collectives.Comm) error {
		s, diff, err := newSyncer(comm, c)
		if err != nil {
			return err
		}
		defer s.Close()
		diff[10], diff[11] = 8, 100 // 11 goes first
		for iter := range 2 {
			if iter == 1 {
				diff[11] = 100
			}
			if err := iterate(s); err != nil {
				return err
			}
			if diff[10] != 0 || diff[11] != 200 {
				return fmt.Errorf("iteration %d: %v and %v, not 0 and 200", iter, diff[10], diff[11])
			}
			clear(diff)
		}
		if err := iterate(s); err != nil {
			return err
		}
		if want := float32(2 * 8 * (1 + 0.5 + 0.25)); diff[10] != want {
			return fmt.Errorf("element 10 is %v, not %v", diff[10], want)
		}
		return nil
	})
}

// With a sparsity of 0 all is sent, and factor masking leaves no momentum (section 3.3): the sums are those of plain SGD.
func TestSparsityZeroSendsAll(t *testing.T) {
	const ranks, iters = 3, 3
	sums, left := run(t, ranks, 0, Config{Momentum: 0.5}, 0, iters, nil)
	own := make([]float32, elements)
	for iter := range iters {
		want := make([]float32, elements)
		for r := range ranks {
			gradients(own, r, iter)
			for i, x := range own {
				want[i] += x
			}
		}
		if !slices.Equal(sums[1][iter], want) {
			t.Errorf("iteration %d: not the sum of all gradients", iter)
		}
	}
	zero := make([]float32, elements)
	if !slices.Equal(left[0].Velocity, zero) || !slices.Equal(left[0].Accumulated, zero) {
		t.Error("something is held")
	}
}

// A run that goes on with what was held has the bits of one that was not interrupted, in the warm-up and after it.
func TestGoesOnWithWhatIsHeld(t *testing.T) {
	const ranks, iters = 3, 12
	whole, _ := run(t, ranks, 0, config, 0, iters, nil)
	for _, at := range []int{1, 5, 10} {
		_, held := run(t, ranks, 0, config, 0, at, nil)
		rest, _ := run(t, ranks, 3, config, at, iters, held)
		for r := range ranks {
			for i, sum := range rest[r] {
				if !slices.Equal(sum, whole[r][at+i]) {
					t.Fatalf("interrupted after %d: rank %d has other bits in iteration %d", at, r, at+i)
				}
			}
		}
	}
}

// Scale is for one push, and acts before anything is accumulated (section 3.2, local gradient clipping).
func TestScaleIsForOnePush(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		s, diff, err := newSyncer(c, Config{})
		if err != nil {
			return err
		}
		defer s.Close()
		for _, want := range []float32{4, 16} {
			if want == 4 {
				s.Scale(0.25)
			}
			diff[5] = 8
			if err := iterate(s); err != nil {
				return err
			}
			if diff[5] != want {
				return fmt.Errorf("the sum is %v, not %v", diff[5], want)
			}
		}
		return nil
	})
	if got := 10 * Fraction(4); got != 5 {
		t.Errorf("of a threshold of 10, each of 4 workers has %v, not 5", got)
	}
}

// A gradient that is not finite is seen by all ranks, and spoils nothing that is held.
func TestNotFinite(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		collectivestest.Late(t, 3, 0, func(c *collectives.Comm) error {
			s, diff, err := newSyncer(c, config)
			if err != nil {
				return err
			}
			defer s.Close()
			gradients(diff, c.Rank(), 0)
			if err := iterate(s); err != nil {
				return err
			}
			u, v := slices.Clone(s.Held().Velocity), slices.Clone(s.Held().Accumulated)
			gradients(diff, c.Rank(), 1)
			if c.Rank() == 1 {
				diff[301] = bad
			}
			if err := iterate(s); err != nil {
				return err
			}
			if x := diff[301]; x-x == 0 {
				return fmt.Errorf("the sum of a gradient of %v is %v", bad, x)
			}
			if c.Rank() == 1 && (!slices.Equal(u, s.Held().Velocity) || !slices.Equal(v, s.Held().Accumulated)) {
				return errors.New("what is held has changed")
			}
			return nil
		})
	}
}

// A message has 8 bytes for each value that is sent, to every other rank, by the engine's count.
func TestBytes(t *testing.T) {
	const ranks = 4
	c := Config{Sparse: coordinator.Sparse{Sparsity: 0.9}}
	values := int64(coordinator.Count(300, 0.9) + coordinator.Count(3, 0.9) + coordinator.Count(397, 0.9))
	if values != 30+1+40 {
		t.Fatalf("%d values are sent", values)
	}
	collectivestest.Late(t, ranks, 0, func(comm *collectives.Comm) error {
		s, _, err := newSyncer(comm, c)
		if err != nil {
			return err
		}
		defer s.Close()
		before := comm.Payload()
		if err := iterate(s); err != nil {
			return err
		}
		after := comm.Payload()
		moved := nbc.Payload{Sent: after.Sent - before.Sent, Received: after.Received - before.Received}
		want := nbc.Payload{Sent: 8 * values * (ranks - 1), Received: 8 * values * (ranks - 1)}
		if moved != want || moved != s.Payload() {
			return fmt.Errorf("%v moved, not %v; by the syncer %v", moved, want, s.Payload())
		}
		return nil
	})
}

func TestIterationsAllocateNothing(t *testing.T) {
	collectivestest.Late(t, 1, 0, func(c *collectives.Comm) error {
		s, diff, err := newSyncer(c, config)
		if err != nil {
			return err
		}
		defer s.Close()
		st := &s.stages[0]
		gradients(diff, 0, 0)
		if n := testing.AllocsPerRun(10, func() { s.write(st, st.all) }); n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return nil
	})
}

// What is in no piece is neither sent nor held, whatever lies there.
func TestOutsideOfPieces(t *testing.T) {
	c := config
	c.Pieces = []schedule.Range{{Off: 10, Len: 290}, {Off: 350, Len: 300}}
	sums, left := run(t, 3, 0, c, 0, 2, nil)
	for e := range elements {
		if e >= 10 && e < 300 || e >= 350 && e < 650 {
			continue
		}
		if sums[2][0][e] != 0 || sums[1][1][e] != 0 || left[1].Velocity[e] != 0 || left[1].Accumulated[e] != 0 {
			t.Fatalf("element %d, which is in no piece, was sent or is held", e)
		}
	}
	collectivestest.Late(t, 2, 0, func(comm *collectives.Comm) error {
		c := c // each rank its own
		for _, p := range [][]schedule.Range{{{Off: 690, Len: 11}}, {{Len: 5}, {Off: 4, Len: 5}}} {
			c.Pieces = p
			if _, _, err := newSyncer(comm, c); err == nil || !strings.Contains(err.Error(), "a piece of elements") {
				return fmt.Errorf("%v: %v", p, err)
			}
		}
		return nil
	})
}

// What cannot be done is refused by name.
func TestMistakes(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		b := syncer.Bucket{Name: "fc6", Diff: mem.Of(make([]float32, 10))}
		for want, config := range map[string]Config{
			"a sparsity of 1":               {Sparse: coordinator.Sparse{Sparsity: 1}},
			"a sparsity of -0.1":            {Sparse: coordinator.Sparse{Sparsity: -0.1}},
			"a sparsity of NaN":             {Sparse: coordinator.Sparse{Sparsity: math.NaN()}},
			"a warm-up of -1 iterations":    {Sparse: coordinator.Sparse{Warmup: -1}},
			"a momentum of 1: dgc needs":    {Momentum: 1},
			"a momentum of NaN: dgc needs":  {Momentum: float32(math.NaN())},
			"a momentum of -0.5: dgc needs": {Momentum: -0.5},
		} {
			_, err := New(c, b, config)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `bucket "fc6"`) {
				return fmt.Errorf("%v, want %q", err, want)
			}
		}
		return nil
	})
}

// The bucket is one part, and everyone updates it.
func TestParts(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		s, _, err := newSyncer(c, config)
		if err != nil {
			return err
		}
		defer s.Close()
		if want := []syncer.Part{{Range: schedule.Range{Len: elements}, Updates: true}}; !slices.Equal(s.Parts(), want) {
			return fmt.Errorf("parts %v, not %v", s.Parts(), want)
		}
		return nil
	})
}
