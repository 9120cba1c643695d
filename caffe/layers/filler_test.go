package layers

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func tryFill(t *testing.T, text string, shape ...int) ([]float32, error) {
	t.Helper()
	p := &proto.FillerParameter{}
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	b := blob.New(shape...)
	err := fill(p, b, rand.New(rand.NewPCG(1, 2)))
	return b.Data(), err
}

type stats struct{ mean, std, min, max, zeros float64 }

func statsOf(x []float32) stats {
	s := stats{min: math.Inf(1), max: math.Inf(-1)}
	n := float64(len(x))
	for _, v := range x {
		f := float64(v)
		s.mean += f / n
		s.min, s.max = min(s.min, f), max(s.max, f)
		if v == 0 {
			s.zeros += 1 / n
		}
	}
	for _, v := range x {
		s.std += (float64(v) - s.mean) * (float64(v) - s.mean) / n
	}
	s.std = math.Sqrt(s.std)
	return s
}

// The moments of 60000 numbers lie within 3 % of the distribution's.
func TestFillerDistributions(t *testing.T) {
	shape := []int{60, 40, 5, 5} // fan-in 1000, fan-out 1500
	for text, want := range map[string]stats{
		`type: "uniform" min: -1 max: 3`:                 {mean: 1, std: 4 / math.Sqrt(12), min: -1, max: 3},
		`type: "gaussian" mean: 2 std: 0.5`:              {mean: 2, std: 0.5},
		`type: "xavier"`:                                 {std: math.Sqrt(1. / 1000), min: -math.Sqrt(3. / 1000), max: math.Sqrt(3. / 1000)},
		`type: "xavier" variance_norm: FAN_OUT`:          {std: math.Sqrt(1. / 1500), min: -math.Sqrt(3. / 1500), max: math.Sqrt(3. / 1500)},
		`type: "xavier" variance_norm: AVERAGE`:          {std: math.Sqrt(1. / 1250), min: -math.Sqrt(3. / 1250), max: math.Sqrt(3. / 1250)},
		`type: "msra"`:                                   {std: math.Sqrt(2. / 1000)},
		`type: "msra" variance_norm: FAN_OUT`:            {std: math.Sqrt(2. / 1500)},
		`type: "msra" variance_norm: AVERAGE`:            {std: math.Sqrt(2. / 1250)},
		`type: "gaussian" std: 3 sparse: 15`:             {std: 3 * math.Sqrt(0.25), zeros: 0.75},
		`type: "uniform"`:                                {mean: 0.5, std: 1 / math.Sqrt(12), min: 0, max: 1},
		`type: "gaussian" mean: -7 std: 0.25 sparse: -1`: {mean: -7, std: 0.25},
	} {
		x, err := tryFill(t, text, shape...)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := statsOf(x)
		near := func(what string, a, b, scale float64) {
			if math.Abs(a-b) > 0.03*scale {
				t.Errorf("%s: %s is %g, want %g", text, what, a, b)
			}
		}
		near("mean", got.mean, want.mean, want.std)
		near("std", got.std, want.std, want.std)
		near("share of zeros", got.zeros, want.zeros, 1)
		if want.min != want.max {
			near("min", got.min, want.min, want.std)
			near("max", got.max, want.max, want.std)
			if got.min < want.min-1e-7 || got.max > want.max+1e-7 {
				t.Errorf("%s: range [%g, %g] leaves [%g, %g]", text, got.min, got.max, want.min, want.max)
			}
		}
	}
}

// The fans of a blob with one axis are 1 and its count.
func TestFillerFansOfAVector(t *testing.T) {
	p := &proto.FillerParameter{}
	b := blob.New(10)
	if n, err := fan(p, b); n != 1 || err != nil {
		t.Errorf("fan-in %v, %v; want 1", n, err)
	}
	p.VarianceNorm = proto.FillerParameter_FAN_OUT.Enum()
	if n, err := fan(p, b); n != 10 || err != nil {
		t.Errorf("fan-out %v, %v; want 10", n, err)
	}
}

func TestFillerConstantIsTheDefault(t *testing.T) {
	b := blob.New(3)
	b.Data()[1] = 7
	if err := fill(nil, b, nil); err != nil || b.Data()[1] != 0 {
		t.Errorf("fill(nil) gives %v, %v", b.Data(), err)
	}
	x, err := tryFill(t, `value: 2.5`, 3)
	if err != nil || x[0] != 2.5 || x[2] != 2.5 {
		t.Errorf("constant gives %v, %v", x, err)
	}
}

func TestFillerBilinear(t *testing.T) {
	x, err := tryFill(t, `type: "bilinear"`, 2, 1, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	tent := []float32{0.25, 0.75, 0.75, 0.25}
	for i, v := range x {
		if want := tent[i%4] * tent[i/4%4]; math.Abs(float64(v-want)) > 1e-7 {
			t.Fatalf("element %d is %g, want %g", i, v, want)
		}
	}
	if x, err = tryFill(t, `type: "bilinear"`, 1, 1, 3, 3); err != nil || x[4] < x[0] || math.Abs(float64(x[4])-4./9*1.5*1.5) > 1e-6 {
		t.Errorf("3×3 gives %v, %v", x, err)
	}
}

func TestFillerPositiveUnitball(t *testing.T) {
	x, err := tryFill(t, `type: "positive_unitball"`, 4, 25)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		s := statsOf(x[25*i : 25*i+25])
		if math.Abs(s.mean*25-1) > 1e-5 || s.min < 0 {
			t.Errorf("row %d sums to %g, min %g", i, s.mean*25, s.min)
		}
	}
}

func TestFillerRepeats(t *testing.T) {
	a, _ := tryFill(t, `type: "gaussian"`, 50)
	b, _ := tryFill(t, `type: "gaussian"`, 50)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("element %d: %g and %g from the same seed", i, a[i], b[i])
		}
	}
}

func TestFillerErrors(t *testing.T) {
	for _, c := range []struct {
		text  string
		shape []int
		want  string
	}{
		{`type: "xaver"`, []int{2}, `"xaver" is not supported; supported are [bilinear constant gaussian msra positive_unitball uniform xavier]`},
		{`type: "uniform" min: 2 max: 1`, []int{2}, "min 2 is greater than max 1"},
		{`type: "gaussian" std: 0`, []int{2}, "std 0 is not positive"},
		{`type: "gaussian" sparse: -2`, []int{2}, "sparse -2"},
		{`type: "gaussian" sparse: 3`, []int{2}, "sparse 3"},
		{`type: "xavier" sparse: 3`, []int{2}, "for the gaussian filler only"},
		{`type: "bilinear"`, []int{1, 1, 3, 4}, "square kernel"},
		{`type: "bilinear"`, []int{3, 3}, "four axes"},
		{`type: "constant"`, []int{0, 3}, "nothing to fill"},
	} {
		_, err := tryFill(t, c.text, c.shape...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %v: got %v, want an error with %q", c.text, c.shape, err, c.want)
		}
	}
}
