package solver

import (
	"fmt"
	"math"
	"strings"

	"github.com/scaffe/scaffe/caffe/proto"
)

// Rate is a learning rate policy: the rate of the update that follows the
// forward and backward pass of iteration iter, counted from 0. It depends on
// nothing but iter, so that a resumed run continues with the right rate.
type Rate func(iter int) float32

// policies makes a Rate from each lr_policy. The formulas are Caffe's; they
// are computed in float64 from the float32 fields and rounded once.
var policies = []struct {
	name  string
	needs []string // fields without which the policy means nothing
	rate  func(p *proto.SolverParameter) func(iter float64) float64
}{
	{"fixed", nil, func(*proto.SolverParameter) func(float64) float64 {
		return func(float64) float64 { return 1 }
	}},
	{"step", []string{"gamma", "stepsize"}, func(p *proto.SolverParameter) func(float64) float64 {
		gamma, size := float64(p.GetGamma()), float64(p.GetStepsize())
		return func(iter float64) float64 { return math.Pow(gamma, math.Floor(iter/size)) }
	}},
	{"exp", []string{"gamma"}, func(p *proto.SolverParameter) func(float64) float64 {
		gamma := float64(p.GetGamma())
		return func(iter float64) float64 { return math.Pow(gamma, iter) }
	}},
	{"inv", []string{"gamma", "power"}, func(p *proto.SolverParameter) func(float64) float64 {
		gamma, power := float64(p.GetGamma()), float64(p.GetPower())
		return func(iter float64) float64 { return math.Pow(1+gamma*iter, -power) }
	}},
	{"multistep", []string{"gamma", "stepvalue"}, func(p *proto.SolverParameter) func(float64) float64 {
		gamma, steps := float64(p.GetGamma()), p.GetStepvalue()
		return func(iter float64) float64 { return math.Pow(gamma, float64(passed(steps, int(iter)))) }
	}},
	{"poly", []string{"power", "max_iter"}, func(p *proto.SolverParameter) func(float64) float64 {
		power, last := float64(p.GetPower()), float64(p.GetMaxIter())
		return func(iter float64) float64 { return math.Pow(1-math.Min(iter/last, 1), power) }
	}},
	{"sigmoid", []string{"gamma", "stepsize"}, func(p *proto.SolverParameter) func(float64) float64 {
		gamma, size := float64(p.GetGamma()), float64(p.GetStepsize())
		return func(iter float64) float64 { return 1 / (1 + math.Exp(-gamma*(iter-size))) }
	}},
}

// passed counts the steps that iteration iter has reached.
func passed(steps []int32, iter int) int {
	n := 0
	for n < len(steps) && iter >= int(steps[n]) {
		n++
	}
	return n
}

// NewRate returns the learning rate policy that p's lr_policy names. A policy
// that is unknown, or whose fields are missing or senseless, is an error that
// names policy and field.
func NewRate(p *proto.SolverParameter) (Rate, error) {
	if p.BaseLr == nil {
		return nil, fieldError("base_lr", "base_lr is missing: set the learning rate")
	}
	if p.LrPolicy == nil {
		return nil, fieldError("lr_policy", "lr_policy is missing: use one of %s", policyNames())
	}
	for _, po := range policies {
		if po.name != p.GetLrPolicy() {
			continue
		}
		for _, f := range po.needs {
			if err := checkRateField(p, po.name, f); err != nil {
				return nil, err
			}
		}
		base, rate := float64(p.GetBaseLr()), po.rate(p)
		return func(iter int) float32 { return float32(base * rate(float64(iter))) }, nil
	}
	return nil, fieldError("lr_policy", "unknown lr_policy %q: use one of %s", p.GetLrPolicy(), policyNames())
}

func policyNames() string {
	names := make([]string, len(policies))
	for i, po := range policies {
		names[i] = po.name
	}
	return strings.Join(names, ", ")
}

// checkRateField checks one field that a policy needs.
func checkRateField(p *proto.SolverParameter, policy, field string) error {
	missing := fieldError("lr_policy", "lr_policy %q needs %s, which is missing", policy, field)
	switch field {
	case "gamma":
		if p.Gamma == nil {
			return missing
		}
	case "power":
		if p.Power == nil {
			return missing
		}
	case "max_iter":
		if p.MaxIter == nil {
			return missing
		}
	case "stepsize":
		if p.Stepsize == nil {
			return missing
		}
		if policy == "step" && p.GetStepsize() < 1 {
			return fieldError(field, "stepsize is %d: lr_policy \"step\" needs at least 1", p.GetStepsize())
		}
	case "stepvalue":
		if len(p.Stepvalue) == 0 {
			return missing
		}
		for i := 1; i < len(p.Stepvalue); i++ {
			if p.Stepvalue[i] <= p.Stepvalue[i-1] {
				return fieldError(field, "stepvalue %d follows %d: the values must grow", p.Stepvalue[i], p.Stepvalue[i-1])
			}
		}
	}
	return nil
}

// FieldError is an error about one field of the solver's message.
type FieldError struct {
	Field string // as in solver.prototxt
	Msg   string
}

// Error returns the message.
func (e *FieldError) Error() string { return e.Msg }

func fieldError(field, format string, args ...any) error {
	return &FieldError{Field: field, Msg: fmt.Sprintf(format, args...)}
}
