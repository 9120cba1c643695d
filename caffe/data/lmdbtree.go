package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The layout of LMDB's pages. A page of the tree begins with its number, flags
// and the bounds of its free space; then come the offsets of its nodes, which
// lie at its end. A node of a branch has a page number and a key; a node of a
// leaf has a key and a value, or the page on which a large value begins.
const (
	headerSize = 16
	flagsAt    = 10
	lowerAt    = 12
	upperAt    = 14
	spanAt     = 12 // a value's first page: how many pages it has

	nodeSize = 8 // before the key

	branchPage = 0x01
	leafPage   = 0x02
	valuePage  = 0x04
	oddPages   = 0x20 | 0x40 // of values under one key, which Caffe never writes
	pageKinds  = branchPage | leafPage | valuePage | 0x08 | oddPages

	largeValue = 0x01 // a node's flag
	maxDepth   = 32   // as LMDB's cursors
	noPage     = ^uint64(0)
)

// pages is a data file in memory.
type pages struct {
	bytes []byte
	size  int // of a page
}

// leaf is a leaf page of the tree.
type leaf struct {
	page  uint64
	first int64 // the number of its first entry
}

// page returns a page's bytes. Its number must be in range.
func (p *pages) page(n uint64) []byte {
	at := int(n) * p.size
	return p.bytes[at : at+p.size : at+p.size]
}

func (p *pages) count() uint64 { return uint64(len(p.bytes) / p.size) }

func u16(b []byte, at int) int { return int(binary.NativeEndian.Uint16(b[at:])) }

// keys returns how many nodes a page of the tree has.
func keys(page []byte) int { return (u16(page, lowerAt) - headerSize) / 2 }

// node is an entry of a page of the tree. It refers to the page's bytes.
type node struct {
	child uint64 // of a branch
	key   []byte
	value []byte // of a leaf, unless it is large
	large bool   // the value begins on page child
	size  int    // of the value
	bytes int    // of the node on its page
}

// node reads node i of a page whose header has been checked.
func (p *pages) node(page []byte, i int) (node, error) {
	at := u16(page, headerSize+2*i)
	if at < u16(page, upperAt) || at+nodeSize > p.size {
		return node{}, fmt.Errorf("entry %d begins at byte %d", i, at)
	}
	low, flags, keySize := binary.NativeEndian.Uint32(page[at:]), u16(page, at+4), u16(page, at+6)
	rest := page[at+nodeSize:]
	if keySize > len(rest) {
		return node{}, fmt.Errorf("entry %d has a key of %d bytes", i, keySize)
	}
	n := node{key: rest[:keySize:keySize]}
	if u16(page, flagsAt)&branchPage != 0 {
		n.child, n.bytes = uint64(low)|uint64(flags)<<32, even(nodeSize+keySize)
		return n, nil
	}
	n.size, rest = int(low), rest[keySize:]
	switch flags {
	case 0:
		if n.size > len(rest) {
			return node{}, fmt.Errorf("entry %d has a value of %d bytes", i, n.size)
		}
		n.value, n.bytes = rest[:n.size:n.size], even(nodeSize+keySize+n.size)
	case largeValue:
		if len(rest) < 8 {
			return node{}, fmt.Errorf("entry %d ends too early", i)
		}
		n.large, n.child, n.bytes = true, binary.NativeEndian.Uint64(rest), even(nodeSize+keySize+8)
	default:
		return node{}, fmt.Errorf("entry %d has the flags %#x: it is not of a plain LMDB of key and value", i, flags)
	}
	return n, nil
}

// even rounds a node's size up as LMDB does.
func even(n int) int { return n + n&1 }

// span returns how many pages a large value needs.
func (p *pages) span(size int) uint64 { return uint64((headerSize-1+size)/p.size) + 1 }

// entry returns the key and the value of entry i of a leaf page that check has
// seen.
func (p *pages) entry(number uint64, i int) (key, value []byte, err error) {
	n, err := p.node(p.page(number), i)
	if err != nil {
		return nil, nil, damaged("page %d: %w", number, err)
	}
	if !n.large {
		return n.key, n.value, nil
	}
	if err := p.checkSpan(n); err != nil {
		return n.key, nil, err
	}
	first := p.page(n.child)
	switch span := uint64(binary.NativeEndian.Uint32(first[spanAt:])); {
	case binary.NativeEndian.Uint64(first) != n.child:
		return n.key, nil, damaged("page %d calls itself page %d", n.child, binary.NativeEndian.Uint64(first))
	case u16(first, flagsAt)&pageKinds != valuePage:
		return n.key, nil, damaged("page %d is not the first page of a value: its flags are %#x", n.child, u16(first, flagsAt))
	case span < p.span(n.size):
		return n.key, nil, damaged("page %d begins a value of %d pages, for %d bytes", n.child, span, n.size)
	}
	at := int(n.child)*p.size + headerSize
	return n.key, p.bytes[at : at+n.size : at+n.size], nil
}

// checkSpan reports a large value that does not lie within the file.
func (p *pages) checkSpan(n node) error {
	if span := p.span(n.size); n.child < 2 || n.child >= p.count() || span > p.count()-n.child {
		return damaged("a value of %d bytes begins on page %d of %d", n.size, n.child, p.count())
	}
	return nil
}

// checker walks a tree.
type checker struct {
	*pages
	tree   tree
	used   []uint64 // a bit a page: it belongs to something that was seen
	leaves []leaf
	last   []byte // the key before
	seen   tree   // the numbers of entries and pages so far
}

// check walks the tree of an LMDB in the order of its keys and returns its
// leaf pages. It reports every page that is not what it should be, any that two
// entries claim, keys that are out of order, and totals that differ from the
// meta record's. So what is read later lies where it is looked for. The first
// pages of large values are only looked at when they are read: they may be
// most of the file.
//
// The cost is to read the pages of the tree once. Values of more than half a
// page lie outside of it: ImageNet's 1.28 million images of 192 KB have a tree of
// about 75 MB in a file of 250 GB. Smaller values lie in it, so that MNIST's 60 MB
// are read as a whole.
func (p *pages) check(m meta) ([]leaf, error) {
	c := &checker{pages: p, tree: m.main, used: make([]uint64, p.count()/64+1)}
	switch t := m.main; {
	case t.entries == 0 || t.root == noPage:
		return nil, errors.New("holds no samples")
	case t.flags != 0:
		return nil, fmt.Errorf("the LMDB has the flags %#x: only plain ones of key and value are supported, as Caffe writes them", t.flags)
	case t.depth < 1 || t.depth > maxDepth:
		return nil, damaged("its tree has a depth of %d", t.depth)
	case t.entries > uint64(len(p.bytes)):
		return nil, damaged("its header says %d entries", t.entries)
	}
	if err := c.walk(m.main.root, 1); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		what      string
		have, say uint64
	}{
		{"entries", c.seen.entries, m.main.entries},
		{"leaf pages", c.seen.leaves, m.main.leaves},
		{"branch pages", c.seen.branches, m.main.branches},
	} {
		if x.have != x.say {
			return nil, damaged("it has %d %s, its header says %d", x.have, x.what, x.say)
		}
	}
	return c.leaves, nil
}

// walk checks the page of that number, at some depth of the tree, and all below
// it.
func (c *checker) walk(number uint64, depth uint16) error {
	if number < 2 || number >= c.count() {
		return damaged("its tree leads to page %d of %d", number, c.count())
	}
	if err := c.claim(number, 1); err != nil {
		return err
	}
	page := c.page(number)
	if err := c.header(page, number, depth); err != nil {
		return damaged("page %d: %w", number, err)
	}
	if err := c.compact(page); err != nil {
		return damaged("page %d: %w", number, err)
	}
	if depth == c.tree.depth {
		return c.leaf(page, number)
	}
	c.seen.branches++
	for i := range keys(page) {
		n, err := c.node(page, i)
		if err != nil {
			return damaged("page %d: %w", number, err)
		}
		if err := c.walk(n.child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// header checks a page's header.
func (c *checker) header(page []byte, number uint64, depth uint16) error {
	kind, name, least := branchPage, "branch", 2
	if depth == c.tree.depth {
		kind, name, least = leafPage, "leaf", 1
	}
	lower, upper := u16(page, lowerAt), u16(page, upperAt)
	switch {
	case binary.NativeEndian.Uint64(page) != number:
		return fmt.Errorf("its header says page %d", binary.NativeEndian.Uint64(page))
	case u16(page, flagsAt)&pageKinds != kind:
		return fmt.Errorf("it is not the %s page that its tree has there: its flags are %#x", name, u16(page, flagsAt))
	case lower < headerSize || lower%2 != 0 || lower > upper || upper > c.size:
		return fmt.Errorf("its free space is %d to %d", lower, upper)
	case keys(page) < least:
		return fmt.Errorf("it has %d entries", keys(page))
	}
	return nil
}

// compact checks that the nodes of a page fill the space behind the free space
// exactly, as LMDB keeps them: so no node is longer or shorter than it was.
func (c *checker) compact(page []byte) error {
	sum := 0
	for i := range keys(page) {
		n, err := c.node(page, i)
		if err != nil {
			return err
		}
		sum += n.bytes
	}
	if space := c.size - u16(page, upperAt); sum != space {
		return fmt.Errorf("its entries take %d bytes of a space of %d", sum, space)
	}
	return nil
}

// leaf checks the entries of a leaf page.
func (c *checker) leaf(page []byte, number uint64) error {
	c.leaves = append(c.leaves, leaf{number, int64(c.seen.entries)})
	c.seen.leaves++
	for i := range keys(page) {
		n, err := c.node(page, i)
		if err != nil {
			return damaged("page %d: %w", number, err)
		}
		if c.seen.entries++; c.seen.entries > 1 && bytes.Compare(c.last, n.key) >= 0 {
			return damaged("page %d: entry %d, with key %q, comes after key %q", number, i, n.key, c.last)
		}
		c.last = n.key
		if !n.large {
			continue
		}
		if err := c.checkSpan(n); err != nil {
			return err
		}
		if err := c.claim(n.child, c.span(n.size)); err != nil {
			return err
		}
	}
	return nil
}

// claim notes that n pages from number on are in use.
func (c *checker) claim(number, n uint64) error {
	for i := number; i < number+n; i++ {
		if c.used[i/64]&(1<<(i%64)) != 0 {
			return damaged("page %d is used twice", i)
		}
		c.used[i/64] |= 1 << (i % 64)
	}
	return nil
}
