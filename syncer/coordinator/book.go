package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
)

// FC is the type of the layers that the paper calls so.
const FC = "InnerProduct"

// Layer is a layer with parameters.
type Layer struct {
	Name, Type string
	// Rows and Cols are the extents of an inner product's weights, as they are
	// stored: the paper's M and N. 0 where they are not known, or there are none.
	Rows, Cols int
	// Refuses says why the layer cannot hand over sufficient factors although it
	// is an inner product: shared weights.
	Refuses string
	// Factors is how many rows each rank's factors have in an iteration; nil: as many
	// as it has samples.
	Factors []int
	// Params are the parameters' places in the packed buffers, ascending.
	Params []Range
}

// Elements returns how many elements the parameters have.
func (l *Layer) Elements() int {
	n := 0
	for _, p := range l.Params {
		n += p.Len
	}
	return n
}

// Shape returns the matrix as text, "" where there is none.
func (l *Layer) Shape() string {
	if l.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("%dx%d", l.Rows, l.Cols)
}

// noFactors says why the layer has no sufficient factors, "" if it has.
func (l *Layer) noFactors() string {
	switch {
	case l.Type != FC:
		return "only " + FC + " layers have sufficient factors"
	case l.Refuses != "":
		return l.Refuses
	case l.Rows == 0:
		return "the shape of its weights is not known"
	}
	return ""
}

// Config is what a Book is made of.
type Config struct {
	Nodes   []int // of every rank
	Workers Places
	Servers Places
	// Batch is how many samples each rank reads in an iteration, those of all passes
	// together (iter_size): the paper's K.
	Batch  []int
	Layers []Layer
	// Pair is the size of a KV pair in bytes; 0: DefaultPair. A Slice but AutoSlice takes its place.
	Pair  int
	Slice Slice
	// MaySlice, unless it is 0, is what is cut to where Slice is AutoSlice and ByIteration finds
	// that it pays. A Placement with pairs of its own has no use for it.
	MaySlice Slice
	// Placement says who serves which pair; Seed is what PlaceKVStore draws by.
	Placement Placement
	Seed      int64
	// Pull says how parameters come back.
	Pull Pull
	// Sparse is what the scheme DGC sends of gradients; nil is DefaultSparse.
	Sparse *Sparse
}

// Book is the information book (section 4.1). Its fields are for reading.
type Book struct {
	Nodes            []int // the node of every rank
	Workers, Servers []int // ranks, ascending
	Batch            []int // by rank
	PairBytes        int   // 0: a bucket is one pair
	Slice, MaySlice  Slice
	Placement        Placement
	Seed             int64
	Pull             Pull
	Sparse           Sparse
	Layers           []Layer
	Pairs            []Pair // ascending

	uncut int // PairBytes where Slice is AutoSlice
}

// New checks c and writes the book. Every layer's parameters are cut into pairs;
// Deal cuts anew.
func New(c Config) (*Book, error) {
	b := &Book{Nodes: c.Nodes, Batch: c.Batch, Placement: c.Placement, Seed: c.Seed, Pull: c.Pull, Sparse: c.Sparse.Or(), Layers: c.Layers}
	b.uncut = cmp.Or(c.Pair, DefaultPair)
	if c.Slice == AutoSlice && c.Placement.cuts() {
		b.MaySlice = max(0, c.MaySlice)
	}
	var err error
	b.Workers, b.Servers, err = Roles(c.Nodes, c.Workers, c.Servers)
	if err = errors.Join(err, checkPair(b.uncut), c.Slice.check(), b.Sparse.Check()); err != nil {
		return nil, err
	}
	b.slice(c.Slice)
	if len(c.Batch) != len(c.Nodes) || len(c.Nodes) == 0 {
		return nil, fmt.Errorf("information book: %d batches of %s", len(c.Batch), ranks(len(c.Nodes)))
	}
	var all [][]int
	for i := range c.Layers {
		if err := c.Layers[i].check(len(c.Nodes)); err != nil {
			return nil, err
		}
		all = append(all, []int{i})
	}
	b.Deal(all)
	return b, nil
}

// slice has the parameters cut by s from the next Deal on.
func (b *Book) slice(s Slice) {
	if b.Slice, b.PairBytes = s, b.uncut; s != AutoSlice {
		b.PairBytes = max(0, 4*int(s))
	}
}

// Roles returns which ranks work and which serve, ascending, where nodes are those of all
// ranks. A rank that would do neither is an error.
func Roles(nodes []int, workers, servers Places) (work, serve []int, err error) {
	var errs [2]error
	work, errs[0] = workers.Of("workers", nodes)
	serve, errs[1] = servers.Of("servers", nodes)
	switch err := errors.Join(errs[:]...); {
	case err != nil:
		return nil, nil, err
	case len(work) == 0 || len(serve) == 0:
		return nil, nil, errors.New("information book: want at least one worker and one server")
	}
	for r := range nodes {
		if !slices.Contains(work, r) && !slices.Contains(serve, r) {
			return nil, nil, fmt.Errorf("rank %d is neither a worker nor a server: add it to --workers or --servers", r)
		}
	}
	return work, serve, nil
}

func (l *Layer) check(ranks int) error {
	end := 0
	for _, p := range l.Params {
		if p.Len < 0 || p.Off < end {
			return fmt.Errorf("layer %q: parameter at %v, where %d is the least", l.Name, p, end)
		}
		end = p.End()
	}
	switch {
	case l.Elements() == 0:
		return fmt.Errorf("layer %q has no parameters", l.Name)
	case l.Rows < 0 || l.Cols < 0 || l.Rows > 0 && l.Rows*l.Cols != l.Params[0].Len:
		return fmt.Errorf("layer %q: weights of %dx%d do not have %d elements", l.Name, l.Rows, l.Cols, l.Params[0].Len)
	case l.Factors != nil && len(l.Factors) != ranks:
		return fmt.Errorf("layer %q: rows of the factors of %d ranks, not %d", l.Name, len(l.Factors), ranks)
	}
	return nil
}

// Deal cuts the parameters of buckets, neighboring layers each, into pairs, and
// deals these to the servers. Layers that are in no bucket have no pairs. A bucket that
// begins with one of the layers whole is one pair of any size: adam's layers have one server.
func (b *Book) Deal(buckets [][]int, whole ...int) {
	b.Pairs = nil
	for _, members := range buckets {
		b.Pairs = append(b.Pairs, b.cut(members, len(members) > 0 && slices.Contains(whole, members[0]))...)
	}
	order := first(len(b.Pairs))
	if b.Placement == PlaceEven && b.Slice <= 0 {
		largestFirst(order, b.Pairs)
	}
	dealt := make([]int, len(b.Servers)) // elements
	for turn, i := range order {
		p := &b.Pairs[i]
		server := p.Server
		switch {
		case server >= 0:
		case b.Placement == PlaceRoundRobin || b.Placement == PlaceEven && b.Slice > 0:
			server = slices.Index(dealt, slices.Min(dealt))
		default:
			server = turn % len(b.Servers)
		}
		dealt[server] += p.Len
		p.Server = b.Servers[server]
	}
}

// Shares returns which part of each bucket's parameters every server would have if Deal dealt them; nil
// where some rank both works and serves.
func (b *Book) Shares(buckets [][]int, whole ...int) (shares [][]float64) {
	if !b.apart() {
		return nil
	}
	dealt := *b
	dealt.Deal(buckets, whole...)
	left := dealt.Pairs
	for _, members := range buckets {
		of, all := make([]float64, len(b.Servers)), 0
		last := members[len(members)-1]
		for ; len(left) > 0 && left[0].Layer <= last; left = left[1:] {
			of[slices.Index(b.Servers, left[0].Server)] += float64(left[0].Len)
			all += left[0].Len
		}
		for i := range of {
			of[i] /= float64(all)
		}
		shares = append(shares, of)
	}
	return shares
}

// cut cuts the parameters of neighboring layers into pairs, unless they are to be one. A server is
// the number of one, -1 where it is the next in turn.
func (b *Book) cut(members []int, whole bool) []Pair {
	switch {
	case whole || b.PairBytes == 0 && b.Placement.cuts():
		return cutPairs(b.Layers, members, math.MaxInt/2)
	case b.Placement == PlaceTensor:
		return tensors(b.Layers, members)
	case b.Placement == PlaceKVStore:
		return b.kvstore(members)
	}
	return cutPairs(b.Layers, members, b.PairBytes/4)
}

// pair says in words what a pair is.
func (b *Book) pair() string {
	switch {
	case b.Placement == PlaceTensor:
		return "a parameter"
	case b.Placement == PlaceKVStore:
		return fmt.Sprintf("a parameter, or an even part of one of %d elements and more", kvstoreSplits)
	case b.PairBytes == 0:
		return "a bucket"
	}
	return units.FormatBytes(b.PairBytes)
}

// factorRows is K of a layer: the most rows that a worker's factors have.
func (b *Book) factorRows(l *Layer) int {
	rows := l.Factors
	if rows == nil {
		rows = b.Batch
	}
	k := 0
	for _, r := range b.Workers {
		k = max(k, rows[r])
	}
	return k
}

// roles reports whether there are ranks that only serve, that only work, and that
// do both.
func (b *Book) roles() (servers, workers, both bool) {
	for r := range b.Nodes {
		serves, works := slices.Contains(b.Servers, r), slices.Contains(b.Workers, r)
		servers, workers, both = servers || serves && !works, workers || works && !serves, both || serves && works
	}
	return servers, workers, both
}

// apart reports whether servers are ranks of their own.
func (b *Book) apart() bool {
	servers, workers, both := b.roles()
	return servers && workers && !both
}

// NodeCount returns how many nodes the ranks lie on.
func (b *Book) NodeCount() int {
	return spec.LayoutOf(b.Nodes).Nodes
}

// workingNodes returns how many nodes the workers lie on.
func (b *Book) workingNodes() int {
	var nodes []int
	for _, r := range b.Workers {
		nodes = append(nodes, b.Nodes[r])
	}
	return spec.LayoutOf(nodes).Nodes
}

// Layer returns the layer of that name; the first of several.
func (b *Book) Layer(name string) (*Layer, error) {
	for i := range b.Layers {
		if b.Layers[i].Name == name {
			return &b.Layers[i], nil
		}
	}
	return nil, fmt.Errorf("no layer with parameters is named %q", name)
}

// properties are what Query knows besides layers.
var properties = []struct {
	name string
	of   func(b *Book) any
}{
	{"n_worker", func(b *Book) any { return len(b.Workers) }},
	{"n_server", func(b *Book) any { return len(b.Servers) }},
	{"n_node", func(b *Book) any { return b.NodeCount() }},
	{"batchsize", func(b *Book) any { return b.factorRows(&Layer{}) }},
	{"workers", func(b *Book) any { return b.Workers }},
	{"servers", func(b *Book) any { return b.Servers }},
	{"nodes", func(b *Book) any { return b.Nodes }},
	{"batch", func(b *Book) any { return b.Batch }},
	{"pair", func(b *Book) any { return b.PairBytes }},
	{"pairs", func(b *Book) any { return b.Pairs }},
	{"slice", func(b *Book) any { return b.Slice }},
	{"placement", func(b *Book) any { return b.Placement }},
	{"pull", func(b *Book) any { return b.Pull }},
	{"layers", func(b *Book) any { return b.Layers }},
}

// Query returns properties of the book by their names, as Table 2's method does:
// n_worker, n_server and batchsize, which Algorithm 1 asks for; n_node, workers,
// servers, nodes, batch, pair, pairs, slice, placement, pull and layers; and by the name of a layer, a
// *Layer.
func (b *Book) Query(names ...string) ([]any, error) {
	var values []any
next:
	for _, name := range names {
		var known []string
		for _, p := range properties {
			if p.name == name {
				values = append(values, p.of(b))
				continue next
			}
			known = append(known, p.name)
		}
		l, err := b.Layer(name)
		if err != nil {
			return nil, fmt.Errorf("unknown property %q: want a layer's name, %s", name, or(known))
		}
		values = append(values, l)
	}
	return values, nil
}

// Entry is one line of the book.
type Entry struct{ Name, Value string }

// Entries returns the book line by line.
func (b *Book) Entries() []Entry {
	all := []Entry{
		{"nodes", fmt.Sprint(b.Nodes)},
		{"workers", fmt.Sprint(b.Workers)},
		{"servers", fmt.Sprint(b.Servers)},
		{"batch", fmt.Sprint(b.Batch)},
		{"pair", b.pair()},
		{"slice", b.Slice.String()},
		{"placement", b.Placement.String()},
		{"pull", b.Pull.String()},
	}
	for i := range b.Layers {
		l := &b.Layers[i]
		value := strings.Join(strings.Fields(fmt.Sprint(l.Type, " ", l.Shape(), " at ", l.Params, " ", l.Refuses)), " ")
		if l.Factors != nil {
			value += fmt.Sprint(" factors ", l.Factors)
		}
		all = append(all, Entry{fmt.Sprintf("layer %q", l.Name), value})
	}
	for i, p := range b.Pairs {
		all = append(all, Entry{fmt.Sprintf("pair %d", i), fmt.Sprintf("%v of layer %q at rank %d", p.Range, b.Layers[p.Layer].Name, p.Server)})
	}
	return all
}

// Digests returns a number for each entry and its name, for ranks to compare.
func (b *Book) Digests() []uint64 {
	var all []uint64
	for _, e := range b.Entries() {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%s", e.Name, e.Value)
		all = append(all, h.Sum64())
	}
	return all
}

// Differs returns the error that the books of some ranks differ in their entry i, which
// this one may not have; who says which ranks agree.
func (b *Book) Differs(i int, who string) error {
	e := Entry{"how many entries they have", fmt.Sprint(i)}
	if all := b.Entries(); i < len(all) {
		e = all[i]
	}
	return fmt.Errorf("the information books of the ranks differ in %s: %s; here it is %s (do all nodes have the same files and flags?)", e.Name, who, e.Value)
}
