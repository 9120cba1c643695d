package collectives_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// TestPartsAreProvenRight: a packed call's schedules are proved like any other,
// for drawn parts, specs, roots and ranks.
func TestPartsAreProvenRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "ranks")
		collective := rapid.SampledFrom([]schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce}).Draw(t, "collective")
		var ranges []schedule.Range
		var specs []spec.Spec
		count := 0
		for range rapid.IntRange(1, 5).Draw(t, "parts") {
			s := drawSpec(t)
			if s.Serves(collective) != nil {
				collective = schedule.Allreduce // which all serve but those for broadcasts alone
			}
			if s.Serves(schedule.Allreduce) != nil {
				s = spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}
			}
			length := rapid.IntRange(0, 90).Draw(t, "length")
			ranges, specs = append(ranges, schedule.Range{Off: count, Len: length}), append(specs, s)
			count += length
		}
		root := 0
		if collective != schedule.Allreduce {
			root = rapid.IntRange(0, n-1).Draw(t, "root")
		}
		all := make([]*schedule.Schedule, n)
		for r := range n {
			s, err := spec.BuildParts(spec.Call{Collective: collective, Rank: r, Size: n, Root: root, Count: count, ElemSize: 1}, ranges, specs)
			if err != nil {
				t.Fatal(err)
			}
			all[r] = s
		}
		if err := check.Prove(collective, all, root); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPartsGiveTheBitsOfTheirOwnCollectives: floats that do not sum exactly
// come out alike, packed or apart, whatever the spec.
func TestPartsGiveTheBitsOfTheirOwnCollectives(t *testing.T) {
	defer goleak.VerifyNone(t)
	const count = 1000
	cuts := []int{1, 130, 131, 131, 700}
	for _, n := range []int{1, 2, 3, 4, 7} {
		for _, text := range []string{"chain,chunk=256", "binomial", "direct,chunk=512", "ring,chunk=128", "chain:2/direct", "direct:3/ring", ""} {
			t.Run(fmt.Sprintf("%d ranks/%s", n, text), func(t *testing.T) {
				var opts []collectives.Option
				if text != "" {
					opts = append(opts, collectives.With(parse(t, text)))
				}
				err := world(t, n, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
					return samePacked(c, count, cuts, opts, strings.Contains(text, "ring"))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func samePacked(c *collectives.Comm, count int, cuts []int, opts []collectives.Option, allreduceOnly bool) error {
	ctx := context.Background()
	x := make([]float32, count)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*31+c.Rank()*17))) * float32(math.Pow(10, float64((i+c.Rank())%7)))
	}
	served := map[string]func(send, recv []float32, opts ...collectives.Option) error{
		"allreduce": func(send, recv []float32, o ...collectives.Option) error {
			return c.Allreduce(ctx, mem.Of(send), mem.Of(recv), mem.Float32, mem.Sum, append(o, opts...)...)
		},
	}
	if !allreduceOnly {
		served["reduce"] = func(send, recv []float32, o ...collectives.Option) error {
			return c.Reduce(ctx, mem.Of(send), mem.Of(recv), mem.Float32, mem.Sum, c.Size()-1, append(o, opts...)...)
		}
		served["bcast"] = func(send, recv []float32, o ...collectives.Option) error {
			copy(recv, send)
			return c.Bcast(ctx, mem.Of(recv), mem.Float32, 0, append(o, opts...)...)
		}
	}
	for _, name := range []string{"allreduce", "reduce", "bcast"} {
		f := served[name]
		if f == nil {
			continue
		}
		packed, apart := make([]float32, count), make([]float32, count)
		if err := f(x, packed, collectives.Parts(cuts...)); err != nil {
			return fmt.Errorf("packed %s: %w", name, err)
		}
		from := 0
		for _, to := range append(slices.Clone(cuts), count) {
			if err := f(x[from:to], apart[from:to]); err != nil {
				return fmt.Errorf("%s of part [%d, %d): %w", name, from, to, err)
			}
			from = to
		}
		if name == "reduce" && c.Rank() != c.Size()-1 {
			continue
		}
		if !slices.Equal(packed, apart) {
			return fmt.Errorf("%s packed has other bits than its parts apart", name)
		}
	}
	return nil
}

// TestPartsThatAreNone are refused on all ranks.
func TestPartsThatAreNone(t *testing.T) {
	err := world(t, 2, 0, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		for _, cuts := range [][]int{{5, 3}, {11}, {-1}} {
			x := mem.Of(make([]float32, 10))
			if err := c.Allreduce(context.Background(), x, x, mem.Float32, mem.Sum, collectives.Parts(cuts...)); err == nil || !strings.Contains(err.Error(), "cut") {
				return fmt.Errorf("cuts %v of 10 elements: %v", cuts, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
