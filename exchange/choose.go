package exchange

import (
	"context"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Choose is a collective that gives every layer its scheme as asked, by the predictions of
// the communicator's cost model and what product says that SFB computes more. The ranks' books
// must be equal (SameBook); their layers are those of layers that have parameters. Schemes are by layer of layers; those of a lone rank, which has
// nobody to be kept in step with, are Reduce, whatever the audit says.
func Choose(ctx context.Context, comm *collectives.Comm, book *coordinator.Book, layers []Layer, asked coordinator.Asked, product func(l *coordinator.Layer) time.Duration) ([]Scheme, *coordinator.Audit, error) {
	network := coordinator.Network{Book: book, Selector: comm.Selector(), Product: product}
	audit, err := book.Choose(asked, network.Predict)
	if err = comm.Agree(ctx, err); err != nil {
		return nil, nil, err
	}
	return Executed(audit, layers), audit, nil
}

// Executed returns the schemes that an audit has come to by layer of layers; those of a lone
// rank are Reduce.
func Executed(audit *coordinator.Audit, layers []Layer) []Scheme {
	schemes := slices.Repeat([]Scheme{Reduce}, len(layers))
	row := 0
	for i, l := range layers {
		if len(l.Params) == 0 {
			continue
		}
		if len(audit.Book.Nodes) > 1 {
			schemes[i] = audit.Rows[row].Choice
		}
		row++
	}
	return schemes
}

// SameBook is a collective that compares the books of all ranks: an error, alike on all,
// names the entry in which they differ.
func SameBook(ctx context.Context, comm *collectives.Comm, b *coordinator.Book) error {
	own := b.Digests()
	most := []int64{int64(len(own))}
	if err := comm.Allreduce(ctx, mem.Of(most), mem.Of(most), mem.Int64, mem.Max); err != nil {
		return err
	}
	n := int(most[0])
	all := make([]int64, (n+1)*comm.Size())
	mine := all[(n+1)*comm.Rank():]
	mine[0] = int64(len(own))
	for i, d := range own {
		mine[1+i] = int64(d)
	}
	if err := comm.Allreduce(ctx, mem.Of(all), mem.Of(all), mem.Int64, mem.Sum); err != nil {
		return err
	}
	var digests [][]uint64
	for one := range slices.Chunk(all, n+1) {
		var d []uint64
		for _, x := range one[1 : 1+one[0]] {
			d = append(d, uint64(x))
		}
		digests = append(digests, d)
	}
	return comm.Agree(ctx, b.Compare(digests))
}
