package collectives

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/scaffe/scaffe/mem"
)

// checkParts is check of an Allgather. It sets where this rank's part lies, and forgets
// counts that are equal.
func (k *call) checkParts(c *Comm) (count int, err error) {
	if len(k.cuts) > 0 {
		return 0, errors.New("option Parts does not go with an allgather, whose buffer is made of the ranks' parts")
	}
	for _, b := range []struct {
		name   string
		buffer mem.Buffer
	}{{"send", k.send}, {"receive", k.recv}} {
		if err := k.checkBuffer(b.name, b.buffer); err != nil {
			return 0, err
		}
	}
	size, elem := c.Size(), k.dt.Size()
	count = k.recv.Len() / elem
	own := count / size
	k.off = own * c.rank
	switch {
	case k.counts == nil && count%size != 0:
		return 0, fmt.Errorf("the receive buffer has %d elements, which are not equal parts of %d ranks: give every rank's count", count, size)
	case k.counts != nil:
		if own, err = k.countParts(c.rank, size, count); err != nil {
			return 0, err
		}
	}
	part := k.recv.Slice(k.off*elem, own*elem)
	switch {
	case k.send.Len() != own*elem:
		return 0, fmt.Errorf("the send buffer has %d elements, but this rank's part has %d", k.send.Len()/elem, own)
	case k.send.Overlaps(k.recv) && !k.send.Same(part):
		return 0, errors.New("the send buffer overlaps the receive buffer, but is not this rank's part of it: use just that part, or a buffer that lies apart")
	}
	return count, nil
}

// countParts adds the counts up, and returns this rank's.
func (k *call) countParts(rank, size, count int) (own int, err error) {
	if len(k.counts) != size {
		return 0, fmt.Errorf("an allgather needs the counts of all %d ranks, in their order (got %d)", size, len(k.counts))
	}
	sum := 0
	for r, n := range k.counts {
		if n < 0 {
			return 0, fmt.Errorf("the count of rank %d must not be negative (got %d)", r, n)
		}
		if r == rank {
			k.off = sum
		}
		if sum += n; sum > count { // before it could overflow
			break
		}
	}
	if sum != count {
		return 0, fmt.Errorf("the receive buffer must hold all parts: it has %d elements, their counts are %s", count, abridge(k.counts))
	}
	own = k.counts[rank]
	if !slices.ContainsFunc(k.counts, func(n int) bool { return n != own }) {
		k.counts = nil
	}
	return own, nil
}

// fewCounts is how many counts people are shown.
const fewCounts = 8

// abridge returns the counts of the first ranks in words.
func abridge(counts []int) string {
	text := ""
	for r, n := range counts[:min(fewCounts, len(counts))] {
		if r > 0 {
			text += ", "
		}
		text += strconv.Itoa(n)
	}
	if len(counts) > fewCounts {
		text += ", …"
	}
	return text
}

// describeParts returns unequal counts in words that are equal where all counts are.
func (k *call) describeParts() string {
	switch {
	case k.counts == nil:
		return ""
	case len(k.counts) <= fewCounts:
		return " in parts of " + abridge(k.counts)
	}
	digest := fnv.New64a()
	digest.Write([]byte(countsKey(k.counts)))
	return fmt.Sprintf(" in parts of %s (%016x)", abridge(k.counts), digest.Sum64())
}

// countsKey returns counts as a string that is equal where they are.
func countsKey(counts []int) string {
	var key []byte
	for _, n := range counts {
		key = binary.AppendUvarint(key, uint64(n))
	}
	return string(key)
}
