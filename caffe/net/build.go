package net

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// Options says for what a net is built.
type Options struct {
	// Phase selects layers and sets how they behave.
	Phase proto.Phase
	// Level and Stages join those of the net's own state.
	Level  int
	Stages []string
	// Data says which part of each global batch the data layers read.
	Data layers.DataOptions
	// Seed seeds fillers and dropout. Equal seeds give equal weights.
	Seed uint64
	// Memory is how much the net may take; nil means AvailableMemory.
	Memory *Memory
	// GPU, if set, is where the net computes. What a layer has no kernels for the host does, which Warnings tells.
	GPU *gpu.Device
	// AllocOn, unless nil, gives the GPU's side of the packed buffers, of as many bytes as asked for and undefined contents; see Pack.
	AllocOn func(bytes int) (mem.Buffer, error)
	// Rewrite, if set, may change a copy of each selected layer's message
	// before the layer is made. Synthetic makes one that replaces data sources.
	Rewrite func(*proto.LayerParameter) error
	// MadeAs, if set, returns the message that a layer is made of in place of its own, or its
	// own. What the net says of itself, in model files too, is unchanged by it. WithoutData
	// makes one.
	MadeAs func(*proto.LayerParameter) (*proto.LayerParameter, error)
}

// state is the net's own state joined with the options.
func (o *Options) state(p *proto.NetParameter) *proto.NetState {
	s := &proto.NetState{Phase: &o.Phase, Level: pb.Int32(p.GetState().GetLevel())}
	if o.Level != 0 {
		s.Level = pb.Int32(int32(o.Level))
	}
	s.Stage = append(slices.Clone(p.GetState().GetStage()), o.Stages...)
	return s
}

// builder is a net under construction.
type builder struct {
	*Net
	file      *proto.NetFile
	opts      Options
	available map[string]bool     // blobs that no layer has read yet
	needs     map[*blob.Blob]bool // blobs that depend on a learnable parameter
	means     map[*blob.Blob]bool // blobs that are means over the batch
}

// Load reads a net in text form and builds it.
func Load(path string, o Options) (*Net, error) {
	f, err := proto.ReadNet(path)
	if err != nil {
		return nil, err
	}
	return New(f, o)
}

// New builds the net that f describes; f itself is not changed. The net's data
// layers hold resources until Close.
func New(f *proto.NetFile, o Options) (*Net, error) {
	p := f.Net
	if o.Memory == nil {
		o.Memory = AvailableMemory()
	}
	b := &builder{
		file:      f,
		Net:       &Net{name: p.GetName(), blobs: map[string]*blob.Blob{}, BatchShare: 1, worker: o.Data.Part.Index, memory: o.Memory, allocOn: o.AllocOn},
		opts:      o,
		available: map[string]bool{},
		needs:     map[*blob.Blob]bool{},
		means:     map[*blob.Blob]bool{},
	}
	if err := b.build(p); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b.Net, nil
}

func (b *builder) build(p *proto.NetParameter) error {
	nodes, err := b.filter(p, b.opts.state(p))
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return fmt.Errorf("%s: net %q has no layer for phase %v", b.file.Path, p.GetName(), b.opts.Phase)
	}
	if err := b.rewrite(nodes); err != nil {
		return err
	}
	if b.nodes, err = insertSplits(nodes); err != nil {
		return err
	}
	for i, nd := range b.nodes {
		if err := b.add(i, nd); err != nil {
			return err
		}
	}
	b.decideBackward(p.GetForceBackward())
	if err := b.checkNoBackward(); err != nil {
		return err
	}
	if err := b.takeBlobs(); err != nil {
		return err
	}
	b.finishParams()
	b.outputs()
	b.place()
	b.warnings = slices.Concat(b.file.Warnings(), b.repeatedNames(), b.hostTypes())
	return b.batches()
}

// node makes a node from a copy of the message of layer number i of the file.
func (b *builder) node(i int) *node {
	p := b.file.Net.GetLayer()[i]
	return &node{
		name: p.GetName(), typ: p.GetType(), param: pb.Clone(p).(*proto.LayerParameter),
		place: func(path ...string) string { return b.file.LayerPos(i, path...).String() },
	}
}

func (b *builder) rewrite(nodes []*node) error {
	if b.opts.Rewrite == nil {
		return nil
	}
	for _, nd := range nodes {
		if err := b.opts.Rewrite(nd.param); err != nil {
			return nd.wrap(err)
		}
		nd.name, nd.typ = nd.param.GetName(), nd.param.GetType()
	}
	return nil
}

// add makes layer number i and joins it to the layers before it.
func (b *builder) add(i int, nd *node) error {
	if nd.param.Phase == nil {
		nd.param.Phase = b.opts.Phase.Enum()
	}
	nd.rand = newSource(b.opts.Seed, i)
	of, err := nd.param, error(nil)
	if b.opts.MadeAs != nil {
		if of, err = b.opts.MadeAs(nd.param); err != nil {
			return nd.wrap(err)
		}
	}
	nd.layer, err = layers.New(of, layers.Env{
		Phase: nd.param.GetPhase(), Rand: rand.New(nd.rand.pcg), Data: b.opts.Data, Memory: room{b},
	})
	if err != nil {
		return nd.wrap(err)
	}
	if err := b.connect(nd); err != nil {
		return err
	}
	if err := nd.layer.Setup(nd.bottom, nd.top); err != nil {
		return nd.wrap(err)
	}
	if err := nd.reshape(); err != nil {
		return err
	}
	if nd.weights, err = nd.layerWeights(); err != nil {
		return err
	}
	nd.decideMeans(b.means)
	if err := b.addParams(i, nd); err != nil {
		return err
	}
	if nd.backward {
		for _, t := range nd.top {
			b.needs[t] = true
		}
	}
	return nil
}

// connect finds the node's bottoms and makes its tops.
func (b *builder) connect(nd *node) error {
	if n := len(nd.param.GetPropagateDown()); n > 0 && n != len(nd.param.GetBottom()) {
		return nd.errorIn(path("propagate_down"), "has %d propagate_down and %s: give one per bottom, or none", n, count(len(nd.param.GetBottom()), "bottom"))
	}
	for i, name := range nd.param.GetBottom() {
		if !b.available[name] {
			return nd.errorIn(path("bottom", i), "unknown bottom blob %q (bottom %d)", name, i)
		}
		delete(b.available, name)
		bl := b.blobs[name]
		need := b.needs[bl]
		nd.backward = nd.backward || need
		if pd := nd.param.GetPropagateDown(); len(pd) > 0 {
			need = pd[i]
		}
		nd.bottom, nd.bottomName = append(nd.bottom, bl), append(nd.bottomName, name)
		nd.propagate = append(nd.propagate, need)
	}
	for i, name := range nd.param.GetTop() {
		if err := b.connectTop(nd, i, name); err != nil {
			return err
		}
	}
	return b.checkCounts(nd)
}

// connectTop makes top number i, or takes the bottom of the same number where
// both have one name (in place).
func (b *builder) connectTop(nd *node, i int, name string) error {
	bl := b.blobs[name]
	switch {
	case bl == nil:
		bl = blob.New(0)
		b.blobs[name] = bl
	case i >= len(nd.bottomName) || nd.bottomName[i] != name:
		return nd.errorIn(path("top", i), "top blob %q is a top of an earlier layer too: rename one of them", name)
	case !nd.layer.(layers.Blobs).InPlace():
		return nd.errorIn(path("top", i), "cannot work in place: top %q must have another name than its bottom", name)
	}
	nd.top, nd.topName = append(nd.top, bl), append(nd.topName, name)
	b.available[name] = true
	return nil
}

// checkCounts checks the numbers of bottoms and tops, and gives a loss layer
// the tops that its prototxt leaves out, as Caffe does.
func (b *builder) checkCounts(nd *node) error {
	bounds := nd.layer.(layers.Blobs)
	if err := checkBounds(nd, len(nd.bottom), "bottom", bounds.Bottoms()); err != nil {
		return err
	}
	if nd.isLoss() {
		for len(nd.top) < bounds.Tops().Min {
			nd.top, nd.topName = append(nd.top, blob.New(0)), append(nd.topName, "(automatic)")
		}
	}
	return checkBounds(nd, len(nd.top), "top", bounds.Tops())
}

func checkBounds(nd *node, n int, what string, b layers.Bounds) error {
	switch {
	case b.Min == b.Max && n != b.Min:
		return nd.errorf("takes %s, has %d", count(b.Min, what), n)
	case n < b.Min:
		return nd.errorf("takes at least %s, has %d", count(b.Min, what), n)
	case b.Max >= 0 && n > b.Max:
		return nd.errorf("takes at most %s, has %d", count(b.Max, what), n)
	}
	return nil
}

// repeatedNames has a warning for every name that several layers have.
func (b *builder) repeatedNames() []string {
	layers := map[string][]*node{}
	for _, nd := range b.nodes {
		layers[nd.name] = append(layers[nd.name], nd)
	}
	var warnings []string
	for _, nd := range b.nodes {
		same := layers[nd.name]
		if len(same) < 2 || same[0] != nd {
			continue
		}
		var places []string
		for _, s := range same {
			places = append(places, fmt.Sprintf("%s (%s)", s.where(), s.typ))
		}
		warnings = append(warnings, fmt.Sprintf("net %q has %d layers named %q: %s; weights are copied between layers of one name in their order",
			b.name, len(same), nd.name, strings.Join(places, ", ")))
	}
	return warnings
}

// outputs are the blobs that no layer reads, by name.
func (b *builder) outputs() {
	for name := range b.available {
		b.outputNames = append(b.outputNames, name)
	}
	slices.Sort(b.outputNames)
}

// batches finds the batch sizes, which all data layers must divide alike.
func (b *builder) batches() error {
	var first *node
	for _, nd := range b.nodes {
		l, ok := nd.layer.(layers.Batcher)
		if !ok {
			continue
		}
		global, local := l.GlobalBatch(), l.LocalBatch()
		if first == nil {
			first, b.globalBatch, b.localBatch = nd, global, local
		} else if local*b.globalBatch != b.localBatch*global {
			return nd.errorf("this worker reads %d of %d samples, but %d of %d in layer %q: choose batch sizes that divide alike",
				local, global, b.localBatch, b.globalBatch, first.name)
		}
	}
	return nil
}
