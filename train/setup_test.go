package train_test

import (
	"context"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/train"
)

// Setups in turn on one net: no update is lost or made twice where one takes
// over from another, so the parameters are those of one design throughout.
func TestSetupsInTurn(t *testing.T) {
	path, _ := files(t, 30)
	spec, err := spec.Parse("chain:2/binomial")
	if err != nil {
		t.Fatal(err)
	}
	trained := func(scheme exchange.Scheme, turns ...exchange.Design) (params []float32) {
		err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err = comm.Agree(ctx, err); err != nil {
				return err
			}
			c := train.Config{Solver: f, Design: exchange.SCB, Scheme: scheme, Spec: spec, Bucket: 1}
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			setups := map[exchange.Design]*train.Setup{}
			for _, d := range turns {
				if setups[d] == nil {
					c.Design = d
					if setups[d], err = w.Setup(ctx, c); err != nil {
						return err
					}
				}
				if err := w.Use(setups[d]); err != nil {
					return err
				}
				if err := w.Step(ctx, 3); err != nil {
					return err
				}
			}
			err = w.Exchange().Current()
			if data, _ := w.Solver().Net().Packed(); comm.Rank() == 2 {
				params = slices.Clone(mem.Float32s(data))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return params
	}
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
		want := trained(scheme, exchange.SCB, exchange.SCB, exchange.SCB, exchange.SCB, exchange.SCB)
		got := trained(scheme, exchange.SCOBR, exchange.SCB, exchange.SCOBR, exchange.SCOB, exchange.SCOBNaive)
		if !slices.Equal(got, want) {
			t.Errorf("%v: after setups in turn the parameters are others", scheme)
		}
	}
}
