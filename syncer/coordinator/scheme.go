package coordinator

import (
	"fmt"
	"slices"
	"strings"
)

// Scheme is how the replicas of a layer's parameters are kept in step.
type Scheme uint8

// Auto and Poseidon are asked for, and leave the choice among the others.
const (
	// Auto takes the exact scheme with the least predicted time.
	Auto Scheme = iota
	// Poseidon takes what Algorithm 1 does: sufficient factors or servers.
	Poseidon
	// Reduce sums at a root, which updates and broadcasts.
	Reduce
	// Allreduce sums everywhere, where all update.
	Allreduce
	// PS pushes KV pairs to their servers, which update, and pulls them back.
	PS
	// SFB broadcasts sufficient factors, from which everybody rebuilds the sum.
	SFB
	// Adam pushes sufficient factors to one server and pulls the matrix (Microsoft's
	// Adam, as Poseidon describes it).
	Adam
	// OneBit quantises gradients to a bit (Seide et al. 2014): a lossy scheme.
	OneBit
	// DGC sends the largest of what gradients have come to, and holds the rest (Lin et al. 2018): a lossy scheme,
	// for SGD with momentum.
	DGC
	schemes
)

var names = [schemes]string{"auto", "poseidon", "reduce", "allreduce", "ps", "sfb", "adam", "onebit", "dgc"}

// String returns the name that --scheme takes.
func (s Scheme) String() string {
	if s < schemes {
		return names[s]
	}
	return fmt.Sprintf("Scheme(%d)", uint8(s))
}

// Names lists what --scheme takes.
func Names() []string { return names[:] }

func (s Scheme) chooses() bool { return s == Auto || s == Poseidon }

// Schemes lists those that move parameters, and so may be chosen.
func Schemes() []Scheme { return []Scheme{Reduce, Allreduce, PS, SFB, Adam, OneBit, DGC} }

// candidates are what Auto chooses from, the first of several that are equally
// fast first.
var candidates = []Scheme{Allreduce, Reduce, PS, SFB}

// FactorsOnly reports whether the scheme serves inner products alone.
func (s Scheme) FactorsOnly() bool { return s == SFB || s == Adam || s == OneBit }

// Replicated reports whether every worker has the sum and updates by it; then there are no
// parameters to bring. Otherwise a root or servers update.
func (s Scheme) Replicated() bool { return s == Allreduce || s == SFB || s == OneBit || s == DGC }

// Served reports whether servers update what the scheme moves, each some of the parameters.
func (s Scheme) Served() bool { return s == PS || s == Adam }

// ParseScheme reads one name.
func ParseScheme(text string) (Scheme, error) {
	if i := slices.Index(names[:], text); i >= 0 {
		return Scheme(i), nil
	}
	return 0, fmt.Errorf("unknown scheme %q: want %s", text, or(names[:]))
}

func or(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
}

// Asked is what --scheme asks for, layer by layer.
type Asked struct {
	// Default is for the layers that no rule names.
	Default Scheme
	Rules   []Rule
}

// Rule asks for a scheme for all layers that a pattern matches.
type Rule struct {
	// Pattern is a name, in which * stands for any characters and ? for one.
	Pattern string
	Scheme  Scheme
}

// Schemes returns all that a names: the default first, then the rules'.
func (a Asked) Schemes() []Scheme {
	all := []Scheme{a.Default}
	for _, r := range a.Rules {
		all = append(all, r.Scheme)
	}
	return all
}

// ParseAsked reads the value of --scheme: at most one scheme for the whole net
// (auto where there is none), and PATTERN=SCHEME for layers, separated by commas:
//
//	auto,fc6=sfb,conv*=allreduce
//
// The last pattern that matches a layer holds.
func ParseAsked(text string) (Asked, error) {
	a := Asked{Default: Auto}
	given := false
	for part := range strings.SplitSeq(text, ",") {
		pattern, name, rule := strings.Cut(strings.TrimSpace(part), "=")
		if !rule {
			name = pattern
		}
		s, err := ParseScheme(name)
		switch {
		case err != nil:
			return Asked{}, err
		case rule && pattern == "":
			return Asked{}, fmt.Errorf("invalid scheme %q: want LAYER=SCHEME, such as fc6=sfb or conv*=allreduce", part)
		case rule:
			a.Rules = append(a.Rules, Rule{pattern, s})
		case given:
			return Asked{}, fmt.Errorf("invalid scheme %q: %v and %v are both for the whole net", text, a.Default, s)
		default:
			a.Default, given = s, true
		}
	}
	return a, nil
}

// String returns the text that ParseAsked reads.
func (a Asked) String() string {
	words := []string{a.Default.String()}
	for _, r := range a.Rules {
		words = append(words, r.Pattern+"="+r.Scheme.String())
	}
	return strings.Join(words, ",")
}

// Or returns a, and where that is nil a request for s alone.
func (a *Asked) Or(s Scheme) Asked {
	if a != nil {
		return *a
	}
	return Asked{Default: s}
}

// For returns what a asks for among so many ranks: a lone one, which has nobody to be kept in
// step with, has nothing to choose.
func (a Asked) For(ranks int) Asked {
	if ranks == 1 && a.Default == Auto && len(a.Rules) == 0 {
		a.Default = Reduce
	}
	return a
}

// One returns the scheme that is asked for and serves all layers, whatever they are, and
// false where it depends on the layer.
func (a Asked) One() (Scheme, bool) {
	return a.Default, len(a.Rules) == 0 && slices.Contains([]Scheme{Reduce, Allreduce, PS}, a.Default)
}

// Of returns what is asked for a layer, and whether a rule names it.
func (a Asked) Of(layer string) (s Scheme, named bool) {
	for _, r := range slices.Backward(a.Rules) {
		if match(r.Pattern, layer) {
			return r.Scheme, true
		}
	}
	return a.Default, false
}

// check refuses patterns that match no layer, and schemes that cannot serve a
// layer that is named. As the scheme of a whole net, those for inner products
// leave the rest to the servers.
func (a Asked) check(layers []Layer) error {
	var have []string
	for i := range layers {
		have = append(have, layers[i].Name)
	}
	for _, r := range a.Rules {
		if !slices.ContainsFunc(have, func(name string) bool { return match(r.Pattern, name) }) {
			return fmt.Errorf("scheme %s=%v: no layer with parameters has such a name; there are %s", r.Pattern, r.Scheme, strings.Join(have, ", "))
		}
	}
	for i := range layers {
		l := &layers[i]
		s, named := a.Of(l.Name)
		if why := l.noFactors(); named && s.FactorsOnly() && why != "" {
			return fmt.Errorf("scheme %s=%v: layer %q (%s) cannot: %s", l.Name, s, l.Name, l.Type, why)
		}
	}
	return nil
}

// match reports whether a name is what a pattern stands for.
func match(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	switch {
	case pattern[0] == '*':
		for i := range len(name) + 1 {
			if match(pattern[1:], name[i:]) {
				return true
			}
		}
		return false
	case name == "" || pattern[0] != '?' && pattern[0] != name[0]:
		return false
	}
	return match(pattern[1:], name[1:])
}
