package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

// ErrFormat is the error of ReadFile for a file that Write did not make.
var ErrFormat = errors.New("not a trace of scaffe")

// ReadFile reads a file that Write made.
func ReadFile(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fileEvent is an event as the file has it.
type fileEvent struct {
	Ph   string      `json:"ph"`
	Pid  int         `json:"pid"`
	Ts   json.Number `json:"ts"`
	Dur  json.Number `json:"dur"`
	Cat  string      `json:"cat"`
	Name string      `json:"name"`
	Args struct {
		Iter   int32 `json:"iter"`
		Layer  int32 `json:"layer"`
		Bucket int32 `json:"bucket"`
		Bytes  int64 `json:"bytes"`
	} `json:"args"`
}

// Decode reads what Encode wrote.
func Decode(r io.Reader) (*Trace, error) {
	d := json.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	t, err := decodeHeader(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (scaffe train --trace FILE writes one)", ErrFormat, err)
	}
	names := map[string]string{} // one copy of each
	for n := 0; d.More(); n++ {
		var f fileEvent
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("event %d: %w", n, short(err))
		}
		if f.Ph != "X" {
			continue
		}
		e, err := f.record(names)
		rank := f.Pid - firstID
		if err == nil && (rank < 0 || rank >= len(t.Ranks)) {
			err = fmt.Errorf("process %d of %d ranks", f.Pid, len(t.Ranks))
		}
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", n, err)
		}
		t.Ranks[rank].Events = append(t.Ranks[rank].Events, e)
	}
	for _, want := range "]}" {
		if tok, err := d.Token(); err != nil || tok != json.Delim(want) {
			return nil, fmt.Errorf("unterminated list of events: %w", short(err))
		}
	}
	for i := range t.Ranks {
		sortRecords(t.Ranks[i].Events)
	}
	return t, nil
}

// short says of a file that ends too early that it is cut short.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated file: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// decodeHeader reads up to and including the bracket before the first event.
func decodeHeader(d *json.Decoder) (*Trace, error) {
	expect := func(want ...json.Token) error {
		for _, w := range want {
			if tok, err := d.Token(); err != nil {
				return short(err)
			} else if tok != w {
				return fmt.Errorf("%v instead of %v", tok, w)
			}
		}
		return nil
	}
	if err := expect(json.Delim('{'), "displayTimeUnit", "ms", "otherData"); err != nil {
		return nil, err
	}
	var h header
	if err := d.Decode(&h); err != nil {
		return nil, short(err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("format %q, want %q", h.Format, format)
	}
	t := &Trace{Start: h.Start, Meta: h.Meta, WarmUp: h.WarmUp}
	for _, b := range h.Buckets {
		t.Buckets = append(t.Buckets, Bucket(b))
	}
	for i, hr := range h.Ranks {
		if hr.Rank != i {
			return nil, fmt.Errorf("ranks out of order: %d at position %d", hr.Rank, i)
		}
		r := Rank{Rank: hr.Rank, Host: hr.Host, Outside: hr.Outside, Dropped: hr.Dropped}
		for _, c := range hr.Clock {
			r.Clock = append(r.Clock, Offset{c.AtNs, c.OffsetNs, c.BoundNs})
		}
		t.Ranks = append(t.Ranks, r)
	}
	return t, expect("traceEvents", json.Delim('['))
}

// farthest is more than any run takes; times beyond are no times.
const farthest = 100 * 365 * 24 * time.Hour / 2

func (f *fileEvent) record(names map[string]string) (Record, error) {
	kind, err := ParseKind(f.Cat)
	if err != nil {
		return Record{}, err
	}
	begin, err := micros(f.Ts)
	if err != nil {
		return Record{}, err
	}
	dur, err := micros(f.Dur)
	if err != nil {
		return Record{}, err
	}
	if dur < 0 || f.Args.Bytes < 0 {
		return Record{}, fmt.Errorf("invalid duration %v or size of %d bytes", dur, f.Args.Bytes)
	}
	name := strings.TrimPrefix(strings.TrimPrefix(f.Name, f.Cat), " ")
	if one, known := names[name]; known {
		name = one
	} else {
		names[name] = name
	}
	e := Record{
		Kind: kind, Iter: f.Args.Iter, Layer: f.Args.Layer, Bucket: f.Args.Bucket, Name: name, Bytes: f.Args.Bytes,
		Begin: begin, End: begin + dur,
	}
	e.normalize()
	return e, nil
}

// micros reads a time in µs.
func micros(n json.Number) (time.Duration, error) {
	v, err := n.Float64()
	if err != nil {
		return 0, fmt.Errorf("invalid time %q", n)
	}
	if ns := math.Round(v * 1000); math.Abs(ns) < float64(farthest) {
		return time.Duration(ns), nil
	}
	return 0, fmt.Errorf("invalid time %s µs", n)
}
