package net

import "math/rand/v2"

// source is the random source of one layer. It starts anew at every forward
// pass from the seed, the layer, the worker's part and the number of the pass,
// so that a run resumed at a pass draws what the uninterrupted run drew, and
// so that workers draw different dropout masks but the same initial weights.
type source struct {
	pcg *rand.PCG
	key uint64
}

// newSource makes the source of layer number i, at the state for Setup.
func newSource(seed uint64, i int) *source {
	key := mix(mix(seed) + uint64(i))
	return &source{pcg: rand.NewPCG(key, 0), key: key}
}

// start puts the source to the state for forward pass number pass of a worker.
func (s *source) start(worker int, pass uint64) {
	s.pcg.Seed(mix(s.key+uint64(worker)+1), pass+1)
}

// mix spreads the bits of x (the finalizer of SplitMix64, Steele et al. 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
