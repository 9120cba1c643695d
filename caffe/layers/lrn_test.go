package layers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func init() {
	c := func(name, body string, bottom ...int) gradientCase {
		return gradientCase{name: name, layer: "lrn_param { " + body + " }", bottom: [][]int{bottom}}
	}
	addGradient("LRN",
		c("across", `local_size: 3 alpha: 0.5 k: 2`, 2, 5, 2, 3),
		c("across defaults", ``, 1, 7, 2, 2),
		c("across wider than the channels", `local_size: 9 alpha: 2`, 1, 3, 2, 2),
		c("across beta", `local_size: 3 beta: 0.6`, 2, 4, 2, 2),
		c("within", `norm_region: WITHIN_CHANNEL local_size: 3`, 2, 2, 4, 5),
		c("within wider than the plane", `norm_region: WITHIN_CHANNEL local_size: 7 alpha: 3 beta: 0.5`, 1, 2, 3, 4),
	)
}

func TestLRNIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		size, within, k := 2*in(0, 4, "half")+1, rapid.Bool().Draw(rt, "within"), 1
		region := "WITHIN_CHANNEL"
		if !within {
			region, k = "ACROSS_CHANNELS", in(1, 3, "k")
		}
		beta := rapid.SampledFrom([]float64{0.75, 0.5, 1.25}).Draw(rt, "beta")
		body := fmt.Sprintf(`lrn_param { norm_region: %s local_size: %d alpha: 0.75 beta: %g k: %d }`, region, size, beta, k)
		_, bottom, top := run(rt, "LRN", body, rand.New(rand.NewPCG(uint64(size), 2)), 1,
			[]int{in(0, 2, "n"), in(1, 12, "c"), in(1, 7, "h"), in(1, 7, "w")})
		y, dx := refLRN(size, 0.75, beta, float64(k), within, arrayOf(bottom[0], bottom[0].Data()), given(rt, top[0]))
		closeTo(rt, "top", top[0].Data(), y.v)
		closeTo(rt, "bottom gradient", bottom[0].Diff(), dx.v)
	})
}

func TestLRNErrors(t *testing.T) {
	for body, want := range map[string]string{
		`local_size: 4`:                    `layer "it" (LRN): local_size 4 is not odd`,
		`local_size: 0`:                    "local_size 0 is not odd",
		`norm_region: WITHIN_CHANNEL k: 2`: "is for ACROSS_CHANNELS",
	} {
		_, _, _, err := trySetup("LRN", "lrn_param { "+body+" }", Env{}, 1, []int{1, 3, 2, 2})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
	if _, _, _, err := trySetup("LRN", "", Env{}, 1, []int{1, 3}); err == nil || !strings.Contains(err.Error(), "LRN needs 4") {
		t.Errorf("two axes: %v", err)
	}
}

// BenchmarkLRN runs AlexNet's first LRN, in images/s.
func BenchmarkLRN(b *testing.B) {
	l, bottom, top := run(b, "LRN", "lrn_param { local_size: 5 alpha: 0.0001 }", rand.New(rand.NewPCG(1, 2)), 1, []int{4, 96, 55, 55})
	b.Run("forward", func(b *testing.B) {
		for b.Loop() {
			_ = l.Forward(bottom, top)
		}
		b.ReportMetric(float64(4*b.N)/b.Elapsed().Seconds(), "images/s")
	})
	b.Run("backward", func(b *testing.B) {
		for b.Loop() {
			_ = l.Backward(top, []bool{true}, bottom)
		}
		b.ReportMetric(float64(4*b.N)/b.Elapsed().Seconds(), "images/s")
	})
}
