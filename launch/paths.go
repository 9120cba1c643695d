package launch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/lending"
)

// EnvCUDAPath is the environment variable that says how messages of a GPU's memory go between ranks; rank 0's counts.
const EnvCUDAPath = "SCAFFE_CUDA_PATH"

// autoPath has every pair of ranks use the best path that serves it.
const autoPath = "auto"

// Gather brings the bytes of every rank, which has as many as the others, to all ranks, one after the other.
type Gather func(mine, all []byte) error

// process is told apart from every other one by these bytes.
var process = sync.OnceValue(rand.Text)

// gpuFacts are what a rank says of its GPU.
type gpuFacts struct {
	How     string // the rank's EnvCUDAPath
	Process string
	Node    int
	GPU     int // its number in the process
	UUID    string
	MPS     bool        // a server of NVIDIA's has it
	Probe   cuda.Handle // of memory that others try to open; without bytes where there is none
	Without string      // and why
}

// gpuRow is by which paths a rank can read the others' memory.
type gpuRow struct {
	Paths     []byte         // lending.Path, by rank
	Why       map[int]string // one is Staging
	Forbidden map[int]bool   // what ought to work does not
	Direct    []bool         // by rank: the MPI library that carries messages with it says that it takes GPUs' memory
	Unaware   string         // a node's first rank: why it does not
}

// JoinGPUs is a collective of ranks with a GPU each that finds out by which path the messages of every pair go, as the first
// rank's EnvCUDAPath says. direct reports whether those with a rank go by an MPI library that says that it takes GPUs' memory. An error is that of all ranks.
func JoinGPUs(rank int, nodes []int, d *cuda.Device, direct func(rank int) bool, gather Gather) (joined Joined, err error) {
	mine := gpuFacts{How: os.Getenv(EnvCUDAPath), Process: process(), Node: nodes[rank], GPU: d.Index, UUID: d.UUID}
	mine.MPS, _ = cuda.MPS(d.Index)
	p, err := newProbe(d)
	if err != nil {
		mine.Without = err.Error()
	} else {
		mine.Probe = p.handle
	}
	all, err := GatherJSON(gather, len(nodes), mine)
	if err != nil {
		return Joined{}, errors.Join(err, p.close())
	}
	how := cmp.Or(all[0].How, autoPath)
	forced := lending.Staging
	if how != autoPath {
		if forced, err = lending.ParsePath(how); err != nil {
			err = fmt.Errorf("invalid %s=%q: want %s, or pointer, ipc, mpi or staging for all ranks", EnvCUDAPath, how, autoPath)
			return Joined{}, errors.Join(err, p.close())
		}
	}
	row := gpuRow{Paths: make([]byte, len(all)), Why: map[int]string{}, Forbidden: map[int]bool{}, Direct: make([]bool, len(all))}
	for other := range all {
		row.Direct[other] = (how == autoPath || forced == lending.MPI) && direct(other)
		if how == autoPath || forced.Lends() {
			path, why, forbidden := mine.reach(d, p, rank == other, &all[other])
			row.Paths[other] = byte(path)
			if path == lending.Staging {
				row.Why[other] = why
			}
			if forbidden {
				row.Forbidden[other] = true
			}
		}
	}
	if slices.Contains(row.Direct, true) && slices.Index(nodes, nodes[rank]) == rank {
		if err := TryAware(d.Index); err != nil {
			row.Unaware = err.Error()
		}
	}
	rows, err := GatherJSON(gather, len(nodes), row)
	if err = errors.Join(err, p.close()); err != nil { // which nobody has open any more
		return Joined{}, err
	}
	joined = sharing(all)
	if joined.Paths, joined.Warning, err = agreePaths(rows, nodes, how != autoPath, forced); joined.Warning != "" {
		joined.Warning += fmt.Sprintf(": their messages are staged in the host's memory (%s=staging is the same without this warning)", EnvCUDAPath)
	}
	joined.Lends = lends(all, joined.Paths)
	return joined, err
}

// reach returns by which path this rank can read what another one has, or why by none, and whether that is an error.
func (f *gpuFacts) reach(d *cuda.Device, p *probe, self bool, other *gpuFacts) (path lending.Path, why string, forbidden bool) {
	switch {
	case self:
		return lending.Pointer, "", false
	case other.Process == f.Process:
		if err := d.Reach(other.GPU); err != nil {
			return lending.Staging, err.Error(), false
		}
		return lending.Pointer, "", false
	case other.Node != f.Node:
		return lending.Staging, "they are on two nodes", false
	case other.Without != "":
		return lending.Staging, other.Without, true
	case p == nil:
		return lending.Staging, f.Without, true
	}
	if why, apart := f.apart(other); apart {
		return lending.Staging, why, false
	}
	if err := p.try(d, other.Probe); err != nil {
		return lending.Staging, err.Error(), true
	}
	return lending.IPC, "", false
}

// apart reports whether the driver says that this rank's GPU does not reach the other's, and why; where it does not see that
// one, it says nothing.
func (f *gpuFacts) apart(other *gpuFacts) (why string, apart bool) {
	if f.UUID == other.UUID {
		return "", false
	}
	all, err := cuda.GPUs()
	if err != nil {
		return "", false
	}
	for _, g := range all {
		if g.UUID != other.UUID {
			continue
		}
		if can, err := cuda.CanReach(f.GPU, g.Index); err == nil && !can {
			return fmt.Sprintf("cuda:%d and cuda:%d have no peer access", f.GPU, g.Index), true
		}
	}
	return "", false
}

// agreePaths returns the paths that serve both ranks of each pair: where no other than staging does, that of the MPI library, if it takes GPUs' memory.
// Where only the one that is forced may be, and is not that of all, it is an error.
func agreePaths(rows []gpuRow, nodes []int, only bool, forced lending.Path) (paths lending.Paths, warning string, err error) {
	paths = lending.NewPaths(len(rows))
	failed, first := 0, ""
	for i := range rows {
		paths[i][i] = lending.Path(rows[i].Paths[i])
		for j := range i {
			path, why := lending.Path(rows[i].Paths[j]), rows[i].Why[j]
			if other := lending.Path(rows[j].Paths[i]); other == lending.Staging {
				path, why = other, cmp.Or(rows[j].Why[i], why)
			}
			forbidden, fails := rows[i].Forbidden[j] || rows[j].Forbidden[i], "cannot read each other's memory on the GPU"
			if direct := rows[i].Direct[j] && rows[j].Direct[i]; path == lending.Staging && direct {
				unaware := cmp.Or(rows[slices.Index(nodes, nodes[i])].Unaware, rows[slices.Index(nodes, nodes[j])].Unaware)
				if unaware == "" {
					path = lending.MPI
				} else if !forbidden {
					forbidden, fails, why = true, "cannot use the MPI library for GPUs' memory, which says that it takes that", unaware
				}
			}
			paths[i][j], paths[j][i] = path, path
			if only && path != forced && err == nil {
				switch {
				case path != lending.Staging:
					why = fmt.Sprintf("theirs is %v", path)
				case why == "":
					why = "their messages do not go by an MPI library that says that it takes GPUs' memory"
				}
				err = fmt.Errorf("%s=%v cannot serve ranks %d and %d: %s", EnvCUDAPath, forced, j, i, why)
			}
			if path == lending.Staging && forbidden {
				if failed++; failed == 1 {
					first = fmt.Sprintf("ranks %d and %d %s: %s", j, i, fails, why)
				}
			}
		}
	}
	switch {
	case err != nil || only || failed == 0:
	case failed == 1:
		warning = first
	default:
		warning = fmt.Sprintf("%s; and %d more pairs", first, failed-1)
	}
	return paths, warning, err
}

// GatherJSON brings every rank's value to all, by rank.
func GatherJSON[T any](gather Gather, ranks int, mine T) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	lengths := make([]byte, 8*ranks)
	if err := gather(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), lengths); err != nil {
		return nil, err
	}
	longest := 0
	for r := range ranks {
		longest = max(longest, int(binary.LittleEndian.Uint64(lengths[8*r:])))
	}
	texts := make([]byte, longest*ranks)
	if err := gather(append(text, bytes.Repeat([]byte{' '}, longest-len(text))...), texts); err != nil {
		return nil, err
	}
	all := make([]T, ranks)
	for r := range all {
		if err := json.Unmarshal(texts[longest*r:][:longest], &all[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says of its GPU: %w", r, err)
		}
	}
	return all, nil
}

// probe is memory of a GPU that other processes try to read.
type probe struct {
	d            *cuda.Device
	stream       *cuda.Stream
	memory, host mem.Buffer
	handle       cuda.Handle
}

// What is in the memory of a probe, how many bytes, and how long it may take to read them.
const (
	probeText   = "memory of a GPU as another process reads it\n"
	probeWithin = 10 * time.Second
)

func newProbe(d *cuda.Device) (*probe, error) {
	p := &probe{d: d}
	err := p.open()
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *probe) open() (err error) {
	if p.stream, err = p.d.NewStream(); err != nil {
		return err
	}
	if p.memory, err = p.d.Alloc(len(probeText)); err != nil {
		return err
	}
	if p.host, err = p.d.AllocHost(len(probeText)); err != nil {
		return err
	}
	copy(mem.Bytes(p.host), probeText)
	if err := errors.Join(p.stream.Copy(p.memory, p.host), p.stream.Synchronize(probeWithin)); err != nil {
		return err
	}
	p.handle, err = p.d.Export(p.memory)
	return err
}

// try reads what a handle of another process names.
func (p *probe) try(d *cuda.Device, h cuda.Handle) error {
	b, err := d.Import(h)
	if err != nil {
		return err
	}
	clear(mem.Bytes(p.host))
	err = errors.Join(p.stream.Copy(p.host, b), p.stream.Synchronize(probeWithin), d.CloseImport(b))
	if err == nil && !bytes.Equal(mem.Bytes(p.host), []byte(probeText)) {
		err = errors.New("another process's memory, which could be opened, holds other bytes here than there")
	}
	return err
}

func (p *probe) close() error {
	if p == nil {
		return nil
	}
	err := errors.Join(p.d.Free(p.memory), p.d.FreeHost(p.host))
	if p.stream != nil {
		err = errors.Join(err, p.stream.Close())
	}
	return err
}

// gatherOver gathers over a communicator.
func gatherOver(ctx context.Context, c *collectives.Comm) Gather {
	return func(mine, all []byte) error { return c.Allgather(ctx, mem.Of(mine), mem.Of(all), nil, mem.Uint8) }
}

// allHaveGPUs reports whether every rank's engine has a GPU, which may be lacking (Options.MayLack).
func (r *rank) allHaveGPUs(ctx context.Context) (bool, error) {
	lack := []int64{0}
	if !r.gpu.serves() {
		lack[0] = 1
	}
	err := r.comm.Allreduce(ctx, mem.Of(lack), mem.Of(lack), mem.Int64, mem.Sum)
	return lack[0] == 0, err
}

// join has the rank's messages go by the paths that all ranks agree on.
func (r *rank) join(ctx context.Context) error {
	t := r.engine.Transport().(interface { // of package lending
		nbc.PartCarrier
		SetPaths(lending.Paths) error
	})
	direct := func(rank int) bool { return t.CarriesWith(rank, mem.CUDA) }
	joined, err := JoinGPUs(r.comm.Rank(), r.comm.Nodes(), r.gpu.device, direct, gatherOver(ctx, r.comm))
	if err := r.comm.Agree(ctx, err); err != nil {
		return err
	}
	if joined.Warning != "" && r.comm.Rank() == 0 {
		fmt.Fprintf(r.log, "scaffe: warning: %s\n", joined.Warning)
	}
	r.comm.HasGPU(collectives.GPU{
		Kept: KeptGPU(r.gpu.device.GPU), Open: r.gpu.accelerator, Devices: joined.Devices, Lends: joined.Lends, Turns: joined.Turns,
	})
	return r.engine.Do(ctx, func() error { return t.SetPaths(joined.Paths) })
}

// PathsOf returns by which paths the messages of GPUs' memory go between the ranks of a communicator of all; nil where they have none.
func PathsOf(c *collectives.Comm) lending.Paths {
	t, ok := c.Engine().Transport().(interface{ Paths() lending.Paths })
	if !ok {
		return nil
	}
	var paths lending.Paths
	if err := c.Engine().Do(context.Background(), func() error { paths = t.Paths(); return nil }); err != nil {
		return nil
	}
	return paths
}
