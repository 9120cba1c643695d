package trace

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
)

// part is what a rank hands to rank 0: its events by columns, times as readings
// on its own clock, names by number.
type part struct {
	Host             string
	Outside, Dropped int64
	Names            []string

	Kind                                        []byte
	Iter, Layer, Bucket, Name, Bytes, Begin, Ns []int64
}

// Gather brings the events of all ranks to rank 0, on rank 0's clock. It is a
// collective over comm; only rank 0 gets the trace. The recorders stay on; what
// is added afterwards is not in the trace.
func Gather(ctx context.Context, comm *collectives.Comm, rec *Recorder) (*Trace, error) {
	if rec == nil {
		return nil, nil
	}
	if err := Align(ctx, comm, rec); err != nil {
		return nil, err
	}
	if comm.Rank() != 0 {
		if err := send(ctx, rec.pairs[comm.Rank()], rec.part()); err != nil {
			return nil, fmt.Errorf("trace: gathering events: %w", err)
		}
		return nil, nil
	}
	rec.mu.Lock()
	t := &Trace{Start: rec.epoch.Round(0), Meta: maps.Clone(rec.meta), Buckets: slices.Clone(rec.buckets), WarmUp: rec.warmUp}
	rec.mu.Unlock()
	zero := rec.epoch.UnixNano()
	t.Ranks = append(t.Ranks, rec.part().rank(0, zero, nil))
	for r := 1; r < comm.Size(); r++ {
		p, err := receive(ctx, rec.pairs[r])
		if err != nil {
			return nil, fmt.Errorf("trace: gathering the events of rank %d: %w", r, err)
		}
		t.Ranks = append(t.Ranks, p.rank(r, zero, rec.measured[r]))
	}
	return t, nil
}

// part returns all that the recorder has kept.
func (r *Recorder) part() *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &part{Host: r.host, Outside: r.outside, Dropped: r.dropped}
	p.Kind = make([]byte, 0, r.kept)
	for _, column := range p.columns() {
		*column = make([]int64, 0, r.kept)
	}
	epoch, numbers := r.epoch.UnixNano(), map[string]int64{}
	for _, block := range r.blocks {
		for i := range block {
			e := &block[i]
			n, known := numbers[e.Name]
			if !known {
				n = int64(len(p.Names))
				numbers[e.Name] = n
				p.Names = append(p.Names, e.Name)
			}
			p.Kind = append(p.Kind, byte(e.Kind))
			for k, v := range [...]int64{int64(e.Iter), int64(e.Layer), int64(e.Bucket), n, e.Bytes, epoch + e.Begin, e.End - e.Begin} {
				column := p.columns()[k]
				*column = append(*column, v)
			}
		}
	}
	return p
}

func (p *part) columns() [7]*[]int64 {
	return [...]*[]int64{&p.Iter, &p.Layer, &p.Bucket, &p.Name, &p.Bytes, &p.Begin, &p.Ns}
}

// rank returns the rank with its times on rank 0's clock, from zero on.
func (p *part) rank(r int, zero int64, m []reading) Rank {
	out := Rank{Rank: r, Host: p.Host, Outside: p.Outside, Dropped: p.Dropped, Events: make([]Record, len(p.Kind))}
	for _, o := range m {
		out.Clock = append(out.Clock, Offset{At: time.Duration(o.at - o.ahead - zero), Offset: time.Duration(o.ahead), Bound: time.Duration(o.bound)})
	}
	for i := range out.Events {
		e := &out.Events[i]
		*e = Record{
			Kind: Kind(p.Kind[i]), Iter: int32(p.Iter[i]), Layer: int32(p.Layer[i]), Bucket: int32(p.Bucket[i]),
			Name: p.Names[p.Name[i]], Bytes: p.Bytes[i],
			Begin: time.Duration(toRank0(p.Begin[i], m) - zero),
			End:   time.Duration(toRank0(p.Begin[i]+p.Ns[i], m) - zero),
		}
		e.normalize()
	}
	sortRecords(out.Events)
	return out
}

// send hands a part to the pair's rank 0: its length, then its bytes.
func send(ctx context.Context, pair *collectives.Comm, p *part) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		return err
	}
	length := binary.LittleEndian.AppendUint64(nil, uint64(b.Len()))
	if _, err := move(ctx, pair, length, len(length)); err != nil {
		return err
	}
	_, err := move(ctx, pair, b.Bytes(), b.Len())
	return err
}

// receive is send's other end.
func receive(ctx context.Context, pair *collectives.Comm) (*part, error) {
	length, err := move(ctx, pair, nil, 8)
	if err != nil {
		return nil, err
	}
	b, err := move(ctx, pair, nil, int(binary.LittleEndian.Uint64(length)))
	if err != nil {
		return nil, err
	}
	p := &part{}
	return p, gob.NewDecoder(bytes.NewReader(b)).Decode(p)
}

// move brings n bytes from the pair's rank 1 to its rank 0, and returns them.
func move(ctx context.Context, pair *collectives.Comm, b []byte, n int) ([]byte, error) {
	buf, err := mem.TryAlloc(n)
	if err != nil {
		return nil, err
	}
	copy(mem.Bytes(buf), b)
	if err := pair.Bcast(ctx, buf, mem.Uint8, 1, plain); err != nil {
		return nil, err // the collective may still use the buffer
	}
	defer buf.Free()
	return bytes.Clone(mem.Bytes(buf)), nil
}
