package collectives

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// checkParts is check of a collective of parts. It sets where this rank's part lies, and
// forgets counts that are equal.
func (k *call) checkParts(c *Comm) (count int, err error) {
	if len(k.cuts) > 0 {
		article := "a"
		if k.collective == schedule.Allgather {
			article = "an"
		}
		return 0, fmt.Errorf("option Parts does not go with %s %v, whose buffer is made of the ranks' parts", article, k.collective)
	}
	if !k.needsRecv {
		k.recv = mem.Buffer{}
	}
	if !k.needsSend {
		k.send = mem.Buffer{}
	}
	for _, b := range []struct {
		name   string
		buffer mem.Buffer
	}{{"send", k.send}, {"receive", k.recv}} {
		if err := k.checkBuffer(c, b.name, b.buffer); err != nil {
			return 0, err
		}
	}
	size, elem := c.Size(), k.dt.Size()
	whole, part, all, one, has := k.recv, k.send, "receive", "send", k.needsRecv
	if !k.collective.Gathers() {
		whole, part, all, one, has = part, whole, one, all, k.needsSend
	}
	count = whole.Len() / elem
	if !has { // it is the root's
		count = part.Len() / elem * size
		if k.counts != nil {
			if count = 0; len(k.counts) == size {
				count = sum(k.counts)
			}
		}
	}
	own := count / size
	k.off = own * c.rank
	switch {
	case k.counts == nil && count%size != 0:
		return 0, fmt.Errorf("the %s buffer has %d elements, which are not equal parts of %d ranks: give every rank's count", all, count, size)
	case k.counts != nil:
		if own, err = k.countParts(c.rank, size, count, all); err != nil {
			return 0, err
		}
	}
	if part.Len() != own*elem {
		return 0, fmt.Errorf("the %s buffer has %d elements, but this rank's part has %d", one, part.Len()/elem, own)
	}
	if has && whole.Overlaps(part) && !part.Same(whole.Slice(k.off*elem, own*elem)) {
		return 0, fmt.Errorf("the %s buffer overlaps the %s buffer, but is not this rank's part of it: use just that part, or a buffer that lies apart", one, all)
	}
	return count, nil
}

// sum adds counts, 0 where it would overflow or one is negative.
func sum(counts []int) (n int) {
	for _, c := range counts {
		if n += c; c < 0 || n < 0 {
			return 0
		}
	}
	return n
}

// countParts adds the counts up, and returns this rank's.
func (k *call) countParts(rank, size, count int, whole string) (own int, err error) {
	if len(k.counts) != size {
		return 0, fmt.Errorf("%v needs the counts of all %d ranks, in their order (got %d)", k.collective, size, len(k.counts))
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
		return 0, fmt.Errorf("the %s buffer must hold all parts: it has %d elements, their counts are %s", whole, count, abridge(k.counts))
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
