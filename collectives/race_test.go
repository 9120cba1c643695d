//go:build race

package collectives_test

// raced says that the race detector makes everything some times slower.
const raced = true
