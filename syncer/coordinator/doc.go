// Package coordinator says by which scheme each layer of a net is kept in step, and
// why: Poseidon's coordinator (section 4.1) as data and pure functions.
//
//   - A Book is the information book: workers, servers, batches, layers, and which
//     server has which KV pair. It must be equal on all ranks (exchange.SameBook). Query
//     reads it.
//   - PSCost, SFBCost and AdamCost are Table 1 of the paper; Values has a formula for
//     every scheme.
//   - BestScheme is Algorithm 1 to the letter.
//   - Choose gives every layer the scheme that is asked for, that Algorithm 1 takes,
//     or that a Predictor finds the fastest, and returns an Audit: a row a layer with
//     all schemes' bytes and times, the choice, the runner-up and the reason.
//     Network predicts by the cost model of the collectives.
//
// An example, with the worked example of section 3.2:
//
//	b, err := coordinator.New(coordinator.Config{
//		Nodes: spec.NodesOf(8, 1), Batch: []int{32, 32, 32, 32, 32, 32, 32, 32},
//		Layers: []coordinator.Layer{{Name: "fc7", Type: coordinator.FC, Rows: 4096, Cols: 4096, Params: …}},
//	})
//	b.BestScheme("fc7") // sfb
//
// A choice is a function of its inputs alone: ranks with equal books and
// predictors choose alike. What a predictor has measured is rounded for that
// (selection.Rounded), so that run after run chooses alike too.
//
// The package moves nothing. It knows layers as names, types and extents, and
// neither engines nor solvers.
package coordinator
