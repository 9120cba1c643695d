package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/atomicfile"
)

// Partial returns the file that keeps what was measured until the table is
// written.
func (c Config) Partial() string { return c.Out + ".partial" }

// kept is the contents of the partial file: points, and where they hold.
type kept struct {
	Machine selection.Machine
	Layout  spec.Layout
	Type    string
	Buffers string
	Points  []Point
}

func (s *sweep) fingerprint() kept {
	return kept{Machine: s.Machine, Layout: s.comm.Layout(), Type: s.Type.String(), Buffers: s.Buffers.String()}
}

// resume returns, on all ranks, the points of an interrupted sweep, if there is
// one of the same machine, which is the first rank's, layout and question.
func (s *sweep) resume(ctx context.Context) ([]Point, error) {
	var text []byte
	var err error
	if s.comm.Rank() == 0 {
		text, err = s.load()
	}
	if err := s.comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	if text, err = s.comm.BcastBytes(ctx, text, 0); err != nil || len(text) == 0 {
		return nil, err
	}
	var k kept
	err = json.Unmarshal(text, &k)
	return k.Points, err
}

// load returns what an interrupted sweep has kept; nothing where there is none, an error where it is another's.
func (s *sweep) load() ([]byte, error) {
	text, err := os.ReadFile(s.Partial())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s is not the partial result of a sweep (%w): remove it to start again", s.Partial(), err)
	}
	own := s.fingerprint()
	if k.Machine != own.Machine || k.Layout != own.Layout || k.Type != own.Type || k.Buffers != own.Buffers {
		return nil, fmt.Errorf("%s belongs to a sweep of %v on %v (%s, %s buffers), but this one is a sweep of %v on %v (%s, %s buffers): remove it or choose another --out", s.Partial(),
			k.Layout, k.Machine, k.Type, k.Buffers, own.Layout, own.Machine, own.Type, own.Buffers)
	}
	return text, nil
}

// keep writes what was measured so far.
func (s *sweep) keep(ctx context.Context, points []Point) error {
	var err error
	if s.comm.Rank() == 0 {
		k := s.fingerprint()
		k.Points = points
		var text []byte
		if text, err = json.MarshalIndent(k, "", " "); err == nil {
			err = atomicfile.Write(nil, s.Partial(), append(text, '\n'))
		}
	}
	return s.comm.Agree(ctx, err)
}
