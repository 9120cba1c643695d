// Package factors rebuilds the gradient of a fully connected layer's weights from
// its sufficient factors (Poseidon, section 3.2): u, a row for each sample with
// the gradients of the layer's outputs, and v, a row with its inputs. The
// gradient of the weights is uᵀ·v, that of the bias the sum of u's rows. For few
// samples the factors are much smaller than that matrix.
//
// A Stack is the factors of several parts of a batch, each computed elsewhere, in
// one slice: all rows of the first part, then those of the second, and so on. A
// row is u's followed by v's, so that a part is contiguous, and the whole is the
// result of an allgather of the parts. What is rebuilt depends on the rows in
// their order alone, not on when they came:
//
//	s, err := factors.NewStack(factors.Shape{Out: 4096, In: 25088}, []int{32, 32}, 1)
//	stacked := make([]float32, s.Len())
//	s.Put(stacked, 0, 0, u, v)                 // part 0, pass 0
//	…                                          // part 1 comes from elsewhere
//	err = s.Rebuild(stacked, weights, bias)    // their gradients
//
// # The order of additions
//
// Rebuild is one product of all rows, computed tile by tile of the result. In a
// tile it adds in the order in which the gradients would be added if every part had
// computed its own: the passes of a part, then the parts. A plain product of as
// many rows adds all of them one after another, with 1.3 (2 parts) to 2.7 times (8)
// the rounding errors; this has those of summing matrices. The tile stays in the
// cache, so that the result goes to memory once.
//
// It knows nothing of layers, ranks or messages.
package factors
