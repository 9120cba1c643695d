package data

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
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
	// Root is put before each path as it is, so it ends in a slash.
	Root string
	// Height and Width, both or neither, are what images are resized to.
	Height, Width int
	// Color is BGR, or Gray for one channel.
	Color Color
	// Shuffle makes each pass over the list go in an order of its own, a
	// function of Seed and the pass alone.
	Shuffle bool
	Seed    uint64
}

type listSource struct {
	path string
	o    ListOptions
	list []Listed
	dec  Decoder
	last Listed

	pass int64   // that order is for, -1 for none
	perm []int32 // the order of that pass
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
	return &listSource{
		path: path, o: o, list: list, pass: -1,
		dec: Decoder{Color: o.Color, Height: o.Height, Width: o.Width},
	}, nil
}

func (s *listSource) Len() int64 { return int64(len(s.list)) }

func (s *listSource) Where() string {
	return fmt.Sprintf("%s:%d: image %s", s.path, s.last.Line, s.o.Root+s.last.Path)
}

func (s *listSource) Read(pass, i int64, out *Sample) error {
	if s.o.Shuffle {
		s.shuffle(pass)
		i = int64(s.perm[i])
	}
	s.last = s.list[i]
	file, err := os.ReadFile(s.o.Root + s.last.Path)
	if err != nil {
		return err
	}
	out.Label, out.HasLabel = s.last.Label, true
	return s.dec.Image(file, out)
}

// shuffle makes the order of a pass.
func (s *listSource) shuffle(pass int64) {
	if s.pass == pass {
		return
	}
	if s.perm == nil {
		s.perm = make([]int32, len(s.list))
	}
	for i := range s.perm {
		s.perm[i] = int32(i)
	}
	r := rand.New(rand.NewPCG(s.o.Seed, uint64(pass)))
	r.Shuffle(len(s.perm), func(i, j int) { s.perm[i], s.perm[j] = s.perm[j], s.perm[i] })
	s.pass = pass
}

func (s *listSource) Close() error { return nil }
