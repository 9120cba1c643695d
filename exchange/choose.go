package exchange

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Choose is a collective that gives every layer its scheme as asked, by the predictions of
// n, which the lowest rank makes and tells the others. The ranks' books must be equal (SameBook); their layers are those of layers that have
// parameters. Where f is not nil, what is left to Auto is chosen by f's iterations;
// basis says in words what f goes by. Schemes are by layer of layers; those of a
// lone rank, which has nobody to be kept in step with, are Reduce, whatever the audit says.
func Choose(ctx context.Context, comm *collectives.Comm, layers []Layer, asked coordinator.Asked, n *coordinator.Network, f *Forecast, basis string) ([]Scheme, *coordinator.Audit, error) {
	defer n.Forget()
	var audit *coordinator.Audit
	var text []byte
	var err error
	if comm.Rank() == 0 {
		if audit, err = Predicted(asked, n); err == nil && f != nil {
			err = Weigh(audit, f, basis)
		}
		if err == nil {
			text = audit.Told()
		}
	}
	if err = comm.Agree(ctx, err); err != nil {
		return nil, nil, err
	}
	if text, err = comm.BcastBytes(ctx, text, 0); err != nil {
		return nil, nil, err
	}
	if comm.Rank() > 0 {
		audit, err = n.Book.Hear(asked, text)
	}
	if err = comm.Agree(ctx, err); err != nil {
		return nil, nil, err
	}
	return Executed(audit, layers), audit, nil
}

// Predicted gives every layer of n's book its scheme as asked, by the predictions of n, which all cores make.
func Predicted(asked coordinator.Asked, n *coordinator.Network) (*coordinator.Audit, error) {
	total := 0
	for i := range n.Book.Layers {
		total += mem.Float32.Size() * n.Book.Layers[i].Elements()
	}
	do, take := n.Ahead(runtime.GOMAXPROCS(0), bucketSizes(total))
	var all sync.WaitGroup
	for _, part := range do {
		all.Go(part)
	}
	all.Wait()
	take()
	return n.Book.Choose(asked, n.Predict)
}

// Weigh changes what is left to Auto by f's iterations, where there is a choice: a lone rank has none.
func Weigh(audit *coordinator.Audit, f *Forecast, basis string) error {
	if len(audit.Book.Nodes) == 1 {
		return nil
	}
	return audit.ByIteration(fmt.Sprintf("%v, %s", f.Design, basis), f.weigh)
}

// Network predicts for the workers of a team by the communicator's cost model, where collectives
// are asked to be done by how.
func Network(team *syncer.Team, book *coordinator.Book, how spec.Spec, product func(l *coordinator.Layer) time.Duration) *coordinator.Network {
	return &coordinator.Network{Book: book, Selector: team.All().Selector(), Spec: how, Library: team.HasLibrary(), Product: product}
}

// Network predicts as Network does for what x moves.
func (x *Exchange) Network(book *coordinator.Book, product func(l *coordinator.Layer) time.Duration) *coordinator.Network {
	return Network(x.team, book, x.c.Spec, product)
}

// Executed returns the schemes that an audit has come to by layer of layers; those of a lone
// rank are Reduce.
func Executed(audit *coordinator.Audit, layers []Layer) []Scheme {
	schemes := slices.Repeat([]Scheme{Reduce}, len(layers))
	if len(audit.Book.Nodes) > 1 {
		for i, row := range InBook(layers) {
			if row >= 0 {
				schemes[i] = audit.Rows[row].Choice
			}
		}
	}
	return schemes
}

// InBook returns for each of layers where it is among the layers of an information book,
// which are those with parameters; -1 for the others.
func InBook(layers []Layer) []int {
	at, n := make([]int, len(layers)), 0
	for i := range layers {
		if at[i] = -1; len(layers[i].Params) > 0 {
			at[i] = n
			n++
		}
	}
	return at
}

// SameBook is a collective that compares the books of all ranks: an error, alike on all,
// names the first entry in which they differ.
func SameBook(ctx context.Context, comm *collectives.Comm, b *coordinator.Book) error {
	digests := b.Digests()
	most := []int64{int64(len(digests))}
	if err := comm.Allreduce(ctx, mem.Of(most), mem.Of(most), mem.Int64, mem.Max); err != nil {
		return err
	}
	who, err := comm.Compare(ctx, append(digests, make([]uint64, int(most[0])-len(digests))...))
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(who, func(text string) bool { return text != "" }); i >= 0 {
		return comm.Agree(ctx, b.Differs(i, who[i]))
	}
	return nil
}
