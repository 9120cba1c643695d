package coordinator

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Choice is by which scheme each layer of a net went in a run, as it lies beside the run's
// snapshots: a run that goes on from one keeps to it, though the network may seem another
// by then.
type Choice struct {
	Asked   Asked // what left the choice
	Workers int   // how many; 0 in files of before, which have Ranks
	Ranks   int
	Slice   Slice // 0: nothing was cut
	// Layers are those with parameters, in their order.
	Layers []Chosen
}

// Chosen is one layer of a Choice.
type Chosen struct {
	Name     string
	Elements int // of its parameters
	Scheme   Scheme
}

// Chooses reports whether some layer's scheme is left to be chosen, by Auto or Poseidon.
func (a Asked) Chooses() bool {
	return slices.ContainsFunc(a.Schemes(), Scheme.chooses)
}

// Choice returns what the audit has come to.
func (a *Audit) Choice() *Choice {
	c := &Choice{Asked: a.Asked, Workers: len(a.Book.Workers)}
	if a.Book.MaySlice > 0 {
		c.Slice = a.Book.Slice
	}
	for i := range a.Rows {
		r := &a.Rows[i]
		c.Layers = append(c.Layers, Chosen{r.Layer.Name, r.Layer.Elements(), r.Choice})
	}
	return c
}

// choiceHead is the first line of a choice as a file, ranksHead that of one of before.
const (
	choiceHead = "# scaffe: the scheme of each layer; a run that resumes from this snapshot with as many workers keeps them"
	ranksHead  = "# scaffe: the scheme of each layer; a run that resumes from this snapshot on as many ranks keeps them"
)

// Text returns the choice as a file: a line for what was asked, for the workers, for slices if there are, and for each
// layer, with the elements of its parameters and its scheme; and a digest of these lines.
func (c *Choice) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nasked %q\nworkers %d\n", choiceHead, c.Asked, c.Workers)
	if c.Slice > 0 {
		fmt.Fprintf(&b, "slice %d\n", c.Slice)
	}
	for _, l := range c.Layers {
		fmt.Fprintf(&b, "layer %q %d %v\n", l.Name, l.Elements, l.Scheme)
	}
	fmt.Fprintf(&b, "digest %016x\n", digest(b.Bytes()))
	return b.Bytes()
}

func digest(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}

// ParseChoice reads what Text returns, and refuses a text that is not whole.
func ParseChoice(text []byte) (*Choice, error) {
	end := bytes.LastIndex(text, []byte("\ndigest ")) + 1
	if end == 0 || string(text[end:]) != fmt.Sprintf("digest %016x\n", digest(text[:end])) {
		return nil, fmt.Errorf("it is damaged: its last line is not the digest of the others")
	}
	lines := strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n")
	c := &Choice{}
	var asked string
	if len(lines) < 3 || !scans(lines[1], "asked %q", &asked) ||
		!(lines[0] == choiceHead && scans(lines[2], "workers %d", &c.Workers)) && !(lines[0] == ranksHead && scans(lines[2], "ranks %d", &c.Ranks)) {
		return nil, fmt.Errorf("it does not begin as a choice of schemes does")
	}
	var err error
	if c.Asked, err = ParseAsked(asked); err != nil {
		return nil, err
	}
	lines = lines[3:]
	if len(lines) > 0 && scans(lines[0], "slice %d", &c.Slice) {
		if lines = lines[1:]; c.Slice < Cut {
			return nil, fmt.Errorf("slices of %d elements are not a size of them", int(c.Slice))
		}
	}
	for _, line := range lines {
		var l Chosen
		var scheme string
		if !scans(line, "layer %q %d %s", &l.Name, &l.Elements, &scheme) {
			return nil, fmt.Errorf("%q is not a line of it", line)
		}
		if l.Scheme, err = ParseScheme(scheme); err != nil {
			return nil, fmt.Errorf("layer %q: %w", l.Name, err)
		}
		c.Layers = append(c.Layers, l)
	}
	return c, nil
}

// scans reports whether a line has such a form, and fills into with what it holds.
func scans(line, form string, into ...any) bool {
	n, err := fmt.Sscanf(line, form, into...)
	return err == nil && n == len(into)
}

// Keep gives every layer the scheme that c says, in place of what Choose has taken; from says
// where c comes from. Servers may be others. Where c is of another number of workers, asks for something else, or
// needs factors that a layer does not have here, the audit stays as it is, and a line of
// its Notes says why. A choice of another net is an error.
func (a *Audit) Keep(c *Choice, from string) error {
	if err := c.of(a.Book); err != nil {
		return err
	}
	if why := a.outdates(c); why != "" {
		a.ChosenAnew(fmt.Sprintf("%s %s", from, why))
		return nil
	}
	a.Notes = append(a.Notes, "# schemes kept from "+from)
	if a.Book.MaySlice > 0 {
		a.Book.slice(c.Slice)
	}
	for i := range a.Rows {
		r := &a.Rows[i]
		if now := r.Choice; now != c.Layers[i].Scheme {
			r.Choice = c.Layers[i].Scheme
			r.RunnerUp = r.fastest(r.Choice)
			r.Reason = fmt.Sprintf("kept; %v would be taken now: %s", now, r.Reason)
		}
	}
	a.deal()
	if a.Iterations == nil || a.Iterations.predict == nil { // who predicts says it
		return nil
	}
	f, err := a.Iterations.predict(Moves{a.Schemes(), a.Book.Slice}, 1)
	a.Iterations.Chosen = f.Time
	return err
}

// ChosenAnew notes why an earlier choice was not kept.
func (a *Audit) ChosenAnew(why string) { a.Notes = append(a.Notes, "# schemes chosen anew: "+why) }

// of makes sure that c is of the book's net.
func (c *Choice) of(b *Book) error {
	if len(c.Layers) != len(b.Layers) {
		return fmt.Errorf("it is of another net: it has %d layers with parameters, and this one %d", len(c.Layers), len(b.Layers))
	}
	for i := range b.Layers {
		l, had := &b.Layers[i], c.Layers[i]
		if had.Name != l.Name || had.Elements != l.Elements() {
			return fmt.Errorf("it is of another net: layer %q with %d parameters, where this one has %q with %d", had.Name, had.Elements, l.Name, l.Elements())
		}
	}
	return nil
}

// outdates says why c cannot be kept here, "" where it can.
func (a *Audit) outdates(c *Choice) string {
	if here := len(a.Book.Nodes); c.Ranks > 0 && c.Ranks != here {
		return fmt.Sprintf("is of %s, here are %d", ranks(c.Ranks), here)
	}
	if here := len(a.Book.Workers); c.Ranks == 0 && c.Workers != here {
		return fmt.Sprintf("is of %s, here are %d", workers(c.Workers), here)
	}
	if had, now := c.Asked.String(), a.Asked.String(); had != now {
		return fmt.Sprintf("is of --scheme %s, here is %s", had, now)
	}
	for i, l := range c.Layers {
		r := &a.Rows[i]
		if o := r.Of(l.Scheme); !o.Serves {
			return fmt.Sprintf("has %v for layer %q, which cannot be here: %s", l.Scheme, l.Name, cmp.Or(o.Refused, r.Layer.noFactors()))
		}
	}
	return ""
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}
