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
		return gradientCase{
			name: name, bottom: [][]int{bottom},
			layer: "inner_product_param { " + body + ` weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 max: 1 } }`,
		}
	}
	addGradient("InnerProduct",
		c("plain", `num_output: 4`, 3, 2, 2, 3),
		c("no bias", `num_output: 4 bias_term: false`, 3, 5),
		c("transpose", `num_output: 4 transpose: true`, 3, 2, 3),
		c("axis 2", `num_output: 3 axis: 2`, 2, 3, 4),
		c("axis -1", `num_output: 3 axis: -1`, 2, 2, 4),
		c("axis 0", `num_output: 3 axis: 0`, 2, 4),
	)
}

func TestInnerProductIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		m, k, n := in(0, 7, "m"), in(1, 70, "k"), in(1, 70, "n")
		bias, transpose := rapid.Bool().Draw(rt, "bias"), rapid.Bool().Draw(rt, "transpose")
		body := fmt.Sprintf(`inner_product_param { num_output: %d bias_term: %t transpose: %t }`, n, bias, transpose)
		l, bottom, top := run(rt, "InnerProduct", body, rand.New(rand.NewPCG(uint64(m), uint64(k))), 1, []int{m, k})
		stored := l.Params()[0]
		w, got := newArray(n, k, 1, 1), make([]float32, n*k) // the gradient as [n, k]
		for i := range n {
			for j := range k {
				at := i*k + j
				if transpose {
					at = j*n + i
				}
				w.v[i*k+j], got[i*k+j] = float64(stored.Data()[at]), stored.Diff()[at]
			}
		}
		var b []float64
		if bias {
			b = float64s(l.Params()[1].Data())
		}
		y, dx, dw, db := refInner(arrayOf(bottom[0], bottom[0].Data()), w, b, given(rt, top[0]))
		closeTo(rt, "top", top[0].Data(), y.v)
		closeTo(rt, "bottom gradient", bottom[0].Diff(), dx.v)
		closeTo(rt, "weight gradient", got, dw.v)
		if bias {
			closeTo(rt, "bias gradient", l.Params()[1].Diff(), db)
		}
	})
}

func TestInnerProductErrors(t *testing.T) {
	for body, want := range map[string]string{
		``:                        "num_output is missing",
		`num_output: 2 axis: 3`:   "axis 3 is out of range",
		`num_output: 2 axis: -4`:  "axis -4 is out of range",
		`num_output: 2 axis: 100`: `layer "it" (InnerProduct)`,
	} {
		_, _, _, err := trySetup("InnerProduct", "inner_product_param { "+body+" }", Env{}, 1, []int{2, 3, 4})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
	l, bottom, top, err := trySetup("InnerProduct", "inner_product_param { num_output: 2 }", Env{}, 1, []int{2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	bottom[0].Reshape(5, 12)
	if err := l.Reshape(bottom, top); err != nil || top[0].Dim(0) != 5 {
		t.Errorf("as many elements in another shape: %v, top %v", err, top[0].Shape())
	}
	bottom[0].Reshape(2, 3, 5)
	if err := l.Reshape(bottom, top); err == nil || !strings.Contains(err.Error(), "the 12 elements") {
		t.Errorf("another length: %v", err)
	}
}
