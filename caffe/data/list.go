package data

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Listed is one line of an image list.
type Listed struct {
	Path  string // without the root folder
	Label int32
	Line  int // counted from 1
}

// ReadList reads an image list as Caffe's tools take them: lines of a path, a
// space and an integer label. Blank lines are skipped.
func ReadList(path string) ([]Listed, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []Listed
	rest, n := string(raw), 0
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		at := strings.LastIndexAny(line, " \t")
		if at < 0 {
			return nil, fmt.Errorf("%s:%d: %q has no label: a line is a path, a space and an integer", path, n, clip(line))
		}
		label, err := strconv.ParseInt(line[at+1:], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: the label %q is not an integer: a line is a path, a space and an integer", path, n, clip(line[at+1:]))
		}
		list = append(list, Listed{strings.TrimSpace(line[:at]), int32(label), n})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: lists no images", path)
	}
	return list, nil
}

// clip shortens s for a message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// ListOptions says how the images of a list are read.
type ListOptions struct {
	// Root is prepended to each path unchanged, so it should end in a slash.
	Root string
	// Height and Width, both or neither, are what images are resized to.
	Height, Width int
	// Color is BGR, or Gray for one channel.
	Color Color
	// Shuffle gives each pass over the list its own order, a function of Seed
	// and the pass alone.
	Shuffle bool
	Seed    uint64
}

// listing is a list of images and its shuffled orders, shared by forked sources.
type listing struct {
	path string
	o    ListOptions
	list []Listed

	mu     sync.Mutex
	orders [2]order // of the passes asked for last: readers cross from one to the next
}

// order is the shuffled order of a pass. It is immutable.
type order struct {
	pass int64
	perm []int32
}

type listSource struct {
	*listing
	dec   Decoder
	last  Listed
	order order
	file  []byte // the last image file's bytes
}

// OpenList opens a list of image files. The files are opened when they are
// read.
func OpenList(path string, o ListOptions) (Source, error) {
	if (o.Height > 0) != (o.Width > 0) || o.Height < 0 || o.Width < 0 {
		return nil, fmt.Errorf("new_height %d and new_width %d: set both or neither", o.Height, o.Width)
	}
	list, err := ReadList(path)
	if err != nil {
		return nil, err
	}
	return (&listing{path: path, o: o, list: list}).source(), nil
}

func (l *listing) source() *listSource {
	return &listSource{listing: l, dec: Decoder{Color: l.o.Color, Height: l.o.Height, Width: l.o.Width}}
}

// Fork shares the list.
func (s *listSource) Fork() (Source, error) { return s.source(), nil }

func (s *listSource) Len() int64 { return int64(len(s.list)) }

func (s *listSource) Where() string {
	return fmt.Sprintf("%s:%d: image %s", s.path, s.last.Line, s.o.Root+s.last.Path)
}

func (s *listSource) Read(pass, i int64, out *Sample) error {
	if s.o.Shuffle {
		if s.order.perm == nil || s.order.pass != pass {
			s.order = s.shuffled(pass)
		}
		i = int64(s.order.perm[i])
	}
	s.last = s.list[i]
	if err := s.read(s.o.Root + s.last.Path); err != nil {
		return err
	}
	out.Label, out.HasLabel = s.last.Label, true
	return s.dec.Image(s.file, out)
}

// read reads a file into the buffer that the last one was in.
func (s *listSource) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s.file = s.file[:0]
	if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() && fi.Size() < maxValues*4 {
		s.file = slices.Grow(s.file, int(fi.Size())+1) // with room to see the end
	}
	for {
		if len(s.file) == cap(s.file) {
			s.file = slices.Grow(s.file, 64<<10)
		}
		n, err := f.Read(s.file[len(s.file):cap(s.file)])
		s.file = s.file[:len(s.file)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// shuffled returns the order of a pass.
func (l *listing) shuffled(pass int64) order {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.orders {
		if o.perm != nil && o.pass == pass {
			return o
		}
	}
	o := order{pass, make([]int32, len(l.list))}
	for i := range o.perm {
		o.perm[i] = int32(i)
	}
	r := rand.New(rand.NewPCG(l.o.Seed, uint64(pass)))
	r.Shuffle(len(o.perm), func(i, j int) { o.perm[i], o.perm[j] = o.perm[j], o.perm[i] })
	l.orders[0], l.orders[1] = l.orders[1], o
	return o
}

func (s *listSource) Close() error { return nil }
