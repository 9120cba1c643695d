package solver

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/scaffe/scaffe/caffe/proto"
)

// parse reads a solver message from its text form.
func parse(t testing.TB, text string) *proto.SolverParameter {
	t.Helper()
	p := &proto.SolverParameter{}
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// The expected rates are worked out by hand from the formulas in Caffe's
// documentation of lr_policy.
func TestRatePolicies(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[int]float64
	}{
		{`lr_policy: "fixed" base_lr: 0.5`, map[int]float64{0: 0.5, 1000: 0.5}},
		{
			`lr_policy: "step" base_lr: 0.01 gamma: 0.1 stepsize: 100`,
			map[int]float64{0: 0.01, 99: 0.01, 100: 0.001, 199: 0.001, 250: 0.0001},
		},
		{`lr_policy: "exp" base_lr: 2 gamma: 0.5`, map[int]float64{0: 2, 1: 1, 3: 0.25}},
		{
			`lr_policy: "inv" base_lr: 0.01 gamma: 0.0001 power: 0.75`,
			map[int]float64{0: 0.01, 10000: 0.005946035575, 5000: 0.01 / 1.355403005},
		},
		{`lr_policy: "inv" base_lr: 1 gamma: 1 power: 2`, map[int]float64{1: 0.25, 3: 0.0625}},
		{
			`lr_policy: "multistep" base_lr: 1 gamma: 0.1 stepvalue: 5 stepvalue: 8`,
			map[int]float64{0: 1, 4: 1, 5: 0.1, 7: 0.1, 8: 0.01, 90: 0.01},
		},
		{
			`lr_policy: "poly" base_lr: 8 power: 2 max_iter: 100`,
			map[int]float64{0: 8, 50: 2, 75: 0.5, 100: 0, 101: 0},
		},
		{
			`lr_policy: "sigmoid" base_lr: 1 gamma: -0.5 stepsize: 10`,
			map[int]float64{10: 0.5, 12: 1 / (1 + math.E), 8: 1 / (1 + 1/math.E)},
		},
	} {
		rate, err := NewRate(parse(t, c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for iter, want := range c.want {
			if got := float64(rate(iter)); math.Abs(got-want) > 1e-6*math.Max(want, 1e-6) {
				t.Errorf("%s: rate(%d) = %v, want %v", c.text, iter, got, want)
			}
		}
	}
}

func TestRateErrors(t *testing.T) {
	for text, want := range map[string]string{
		`lr_policy: "fixed"`:                                           "base_lr is missing",
		`base_lr: 1`:                                                   "lr_policy is missing: use one of fixed, step, exp, inv, multistep, poly, sigmoid",
		`base_lr: 1 lr_policy: "cosine"`:                               `unknown lr_policy "cosine": use one of fixed, step`,
		`base_lr: 1 lr_policy: "step" stepsize: 5`:                     `lr_policy "step" needs gamma`,
		`base_lr: 1 lr_policy: "step" gamma: 1`:                        `lr_policy "step" needs stepsize`,
		`base_lr: 1 lr_policy: "step" gamma: 1 stepsize: 0`:            "stepsize is 0",
		`base_lr: 1 lr_policy: "exp"`:                                  `lr_policy "exp" needs gamma`,
		`base_lr: 1 lr_policy: "inv" gamma: 1`:                         `lr_policy "inv" needs power`,
		`base_lr: 1 lr_policy: "multistep" gamma: 1`:                   `lr_policy "multistep" needs stepvalue`,
		`base_lr: 1 lr_policy: "multistep" gamma: 1 stepvalue: [5, 5]`: "stepvalue 5 follows 5",
		`base_lr: 1 lr_policy: "poly" max_iter: 5`:                     `lr_policy "poly" needs power`,
		`base_lr: 1 lr_policy: "poly" power: 1`:                        `lr_policy "poly" needs max_iter`,
		`base_lr: 1 lr_policy: "sigmoid" gamma: 1`:                     `lr_policy "sigmoid" needs stepsize`,
		`base_lr: 1 lr_policy: "sigmoid" stepsize: 1`:                  `lr_policy "sigmoid" needs gamma`,
	} {
		if _, err := NewRate(parse(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
