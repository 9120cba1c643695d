package collectives

import "fmt"

// Sizes of the built-in rule. S-Caffe section 5 found chains of eight best,
// and the chunked chain ahead of the binomial tree for large buffers.
const (
	smallBytes = 32 << 10
	chainSize  = 8
)

// Select returns the spec that serves a call of the given number of bytes,
// and in words what decided it. What the call asks for (a spec with levels)
// comes before the communicator's own, that before the built-in rule.
func (c *Comm) Select(v Verb, bytes int, asked Spec) (s Spec, why string) {
	switch {
	case len(asked.Levels) > 0:
		return asked, "the call asks for it"
	case len(c.opts.Spec.Levels) > 0:
		return c.opts.Spec, "the communicator's option"
	}
	return builtin(c.Size(), bytes)
}

// builtin is the rule for where nothing was asked for and nothing was tuned.
func builtin(size, bytes int) (Spec, string) {
	switch {
	case bytes <= smallBytes:
		return Spec{[]Level{{Algorithm: "binomial"}}}, fmt.Sprintf("built-in rule: up to %s the fewest steps win", FormatBytes(smallBytes))
	case size <= chainSize:
		return Spec{[]Level{{Algorithm: "chain"}}}, fmt.Sprintf("built-in rule: one chunked chain for up to %d ranks", chainSize)
	}
	return Spec{[]Level{{Algorithm: "chain", Size: chainSize}, {Algorithm: "binomial"}}},
		fmt.Sprintf("built-in rule: chains of %d below a binomial tree for more ranks", chainSize)
}
