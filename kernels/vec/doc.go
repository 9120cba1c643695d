// Package vec has the loops over float32 vectors that layers and solvers share.
//
// Every function gives the same bits on every path (AVX2, portable Go), apart
// from the payload of a NaN. None fuses a multiplication with an addition, and
// none allocates. The environment variable SCAFFE_KERNELS chooses the path, as
// for package kernels.
//
//   - Add, Mul, Scale, AddScaled, AddMul, Affine, Normalize and the like are
//     elementwise. dst may be an operand, but must not overlap one in part;
//     operands are at least as long as dst.
//
//   - Exp, Sigmoid and Tanh are within 2 units in the last place: 0.98, 1.46 and
//     1.32 are the largest errors over a fifth of all float32.
//
//   - Sums (Lanes, Sum, SumSquares, Dot) are taken in float64 in an order that
//     is the same on every processor.
//
//   - FirstNotFinite finds a NaN or an infinity, Max the largest element.
//
//   - Update is what a solver does to parameters, in one pass over memory:
//
//     u := vec.Update{Scale: 1, Decay: 0.0005, Rate: 0.01, Clear: true}
//     u.SGD(0.9, w, g, h) // w by its gradient g and history h; g is 0 afterwards
//
// It knows nothing of layers, solvers or ranks.
package vec
