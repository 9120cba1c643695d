//go:build linux && (amd64 || arm64)

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// magic names the layout of control areas; every change of it changes this.
const magic = 0x5caffe0000000001

// setupComm is the reserved communicator of the messages of set-up, which go
// through inner.
const setupComm = 1<<64 - 1

// New lays the transport over inner. All ranks call it together, on the
// goroutine and thread that make all later calls. Where this rank is alone on
// its node, or inner does not know (nbc.Topology), it returns inner itself. Two
// ranks of a node that cannot reach each other's memory go on over inner.
// With an error, inner is still the caller's to close.
func New(inner nbc.Transport, opts Options) (nbc.Transport, error) {
	placed, ok := inner.(nbc.Topology)
	if !ok {
		return inner, nil
	}
	t := &Transport{
		inner: inner, opts: opts, nodes: placed.Nodes(),
		byRank: make([]*peer, inner.Size()), lent: map[nbc.Token]*op{},
	}
	for r, node := range t.nodes {
		if node == t.nodes[inner.Rank()] {
			t.local = append(t.local, r)
		}
	}
	if len(t.local) == 1 {
		return inner, nil
	}
	if err := t.setUp(); err != nil {
		return nil, err
	}
	if what := t.lacking(); what != "" && opts.Warn != nil && inner.Rank() == t.local[0] {
		opts.Warn(what)
	}
	if t.heap == nil {
		return inner, nil
	}
	return t.complete(), nil
}

// hello is what a rank tells the others of its node first.
type hello struct {
	magic, nonce uint64
	pid, fd      uint64
	heap, size   uint64 // of its area
	address      uint64 // of its header, in its process
	local        uint64 // its place among the node's ranks
	cores        cores  // on which its thread may run
}

const helloWords = 8 + len(cores{})

// cores is a set of cores, a bit for each.
type cores [16]uint64

func allowed() (c cores) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for i := range 64 * len(c) {
			if set.IsSet(i) {
				c[i/64] |= 1 << (i % 64)
			}
		}
	}
	return c
}

func (c cores) count() (n int) {
	for _, x := range c {
		n += bits.OnesCount64(x)
	}
	return n
}

func (t *Transport) setUp() error {
	if t.opts.SetupWait == 0 {
		t.opts.SetupWait = time.Minute
	}
	// So that the node's other ranks may read this one's memory under Yama.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	t.area = layout(len(t.local), room(t.opts.Room, len(t.local)))
	if t.heap, t.why = openHeap(t.area, t.opts); t.heap != nil { // otherwise it says hello all the same, for the others to know
		t.own = headerAt(t.heap.base())
		t.own.magic, t.own.nonce = magic, rand.Uint64()
	}
	if err := t.acquaint(); err != nil {
		t.dismantle()
		return err
	}
	return nil
}

// lacking says what this rank cannot do with the others of its node; nothing
// where it can do all.
func (t *Transport) lacking() string {
	private := 0
	for _, p := range t.peers {
		if p.vm {
			private++
		}
	}
	switch others := len(t.local) - 1; {
	case t.heap == nil:
		return fmt.Sprintf("rank %d has no memory to share with the others of its node, so messages between them go another, slower way: %v", t.Rank(), t.why)
	case len(t.peers) < others:
		return fmt.Sprintf("rank %d shares memory with %d of the %d other ranks of its node; messages to the rest go another, slower way: %v", t.Rank(), len(t.peers), others, t.why)
	case private < others:
		return fmt.Sprintf("rank %d and %d of the %d other ranks of its node may not read each other's private memory (process_vm_readv), so buffers that are not registered are copied twice: see kernel.yama.ptrace_scope, or the container's seccomp profile", t.Rank(), others-private, others)
	}
	return ""
}

// room returns the address space for a rank's registered memory.
func room(asked, localSize int) int {
	if asked > 0 {
		return asked
	}
	var info unix.Sysinfo_t
	n := 1 << 36
	if unix.Sysinfo(&info) == nil {
		n = 2 * int(info.Totalram) * int(max(info.Unit, 1))
	}
	n = min(n, 1<<45/localSize) // of 2^47 bytes of address space
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil && limit.Cur < 1<<62 {
		n = min(n, int(limit.Cur)/(2*localSize))
	}
	return max(n, hugePage)
}

// acquaint makes the ranks of the node peers.
func (t *Transport) acquaint() error {
	me := 0
	for i, r := range t.local {
		if r == t.Rank() {
			me = i
		}
	}
	mine := hello{local: uint64(me), cores: allowed()}
	if t.heap != nil {
		mine.magic, mine.nonce = magic, t.own.nonce
		mine.pid, mine.fd = uint64(os.Getpid()), uint64(t.heap.fd)
		mine.heap, mine.size = uint64(t.area.heap), uint64(t.area.size)
		mine.address = uint64(uintptr(t.heap.base()))
	}
	hellos, err := t.gather(0, mine.bytes())
	if err != nil {
		return err
	}
	peers := make([]*peer, len(t.local))
	reached := make([]byte, len(t.local))
	all := mine.cores
	for i, r := range t.local {
		if i == me {
			continue
		}
		h := readHello(hellos[i])
		for j, x := range h.cores {
			all[j] |= x
		}
		p := t.open(r, i, me, h)
		if peers[i] = p; p != nil {
			reached[i] = 1
			if p.vm {
				reached[i] |= 2
			}
		}
	}
	t.rest.open(len(t.local), mine.cores.count(), all.count())
	// Both must reach the other, or neither tries.
	answers, err := t.gather(1, reached)
	if err != nil {
		return err
	}
	for i, p := range peers {
		if p == nil {
			continue
		}
		theirs := answers[i][me]
		if theirs&1 == 0 {
			p.close()
			continue
		}
		p.vm = p.vm && theirs&2 != 0
		t.peers = append(t.peers, p)
		t.byRank[p.rank] = p
	}
	return nil
}

func (h hello) bytes() []byte {
	b := make([]byte, 0, 8*helloWords)
	for _, x := range []uint64{h.magic, h.nonce, h.pid, h.fd, h.heap, h.size, h.address, h.local} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	for _, x := range h.cores {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

func readHello(b []byte) hello {
	var x [helloWords]uint64
	for i := range x {
		x[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	h := hello{magic: x[0], nonce: x[1], pid: x[2], fd: x[3], heap: x[4], size: x[5], address: x[6], local: x[7]}
	copy(h.cores[:], x[8:])
	return h
}

// open maps the area of a rank of this node; nil where that does not work.
func (t *Transport) open(rank, local, me int, h hello) *peer {
	if t.heap == nil {
		return nil
	}
	b, err := t.mapPeer(h)
	if err != nil {
		t.why = fmt.Errorf("the memory of rank %d: %w", rank, err)
		return nil
	}
	p := &peer{
		rank: rank, local: local, pid: int(h.pid), pidfd: -1,
		area: b, heap: int(h.heap), header: headerAt(unsafe.Pointer(unsafe.SliceData(b))),
	}
	p.in = t.area.ringAt(t.heap.base(), local)
	p.out = t.area.ringAt(unsafe.Pointer(p.header), me)
	p.vm = !t.opts.forbidVM && t.iov.canRead(p.pid, uintptr(h.address)+unsafe.Offsetof(t.own.nonce), h.nonce)
	if p.pid != os.Getpid() {
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			p.pidfd = fd
		}
	}
	return p
}

// mapPeer maps the memfd that h names, after a look at whether it is the one.
func (t *Transport) mapPeer(h hello) ([]byte, error) {
	if h.magic != magic || t.opts.forbidMap {
		return nil, errors.New("is not offered in this form")
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", h.pid, h.fd), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG || uint64(s.Size) != h.size || h.heap >= h.size || h.heap < uint64(unsafe.Sizeof(header{})) {
		return nil, errors.New("is another file")
	}
	b, err := mapArea(fd, area{heap: int(h.heap), size: int(h.size)})
	if err != nil {
		return nil, err
	}
	if g := headerAt(unsafe.Pointer(unsafe.SliceData(b))); g.magic != magic || g.nonce != h.nonce {
		_ = unix.Munmap(b)
		return nil, errors.New("is another rank's file")
	}
	return b, nil
}

// gather sends mine to the node's other ranks through inner and returns what
// each of them, by place, has sent: as many bytes.
func (t *Transport) gather(round uint32, mine []byte) ([][]byte, error) {
	n, ranks := len(mine), len(t.local)
	room := mem.Alloc((ranks + 1) * n)
	src := room.Slice(ranks*n, n)
	copy(mem.Bytes(src), mine)
	tag := nbc.Tag{Comm: setupComm, Message: round}
	left := 0
	got := make([][]byte, ranks)
	for i, r := range t.local {
		if r == t.Rank() {
			continue
		}
		dst := room.Slice(i*n, n)
		got[i] = mem.Bytes(dst)
		if err := errors.Join(t.inner.Recv(nbc.Token(2*i), r, tag, dst), t.inner.Send(nbc.Token(2*i+1), r, tag, src)); err != nil {
			return nil, err
		}
		left += 2
	}
	if err := t.await(left); err != nil {
		return nil, err // room may still be in use
	}
	for i := range got {
		got[i] = append([]byte(nil), got[i]...)
	}
	room.Free()
	return got, nil
}

// await waits for n operations of inner.
func (t *Transport) await(n int) error {
	var ended [16]nbc.Completion
	for end := time.Now().Add(t.opts.SetupWait); n > 0; {
		k, err := t.inner.Poll(ended[:])
		if err != nil {
			return err
		}
		for _, c := range ended[:k] {
			if c.Err != nil {
				return c.Err
			}
		}
		if n -= k; k == 0 {
			if time.Now().After(end) {
				return fmt.Errorf("shm: rank %d waited %v for the other ranks of its node to set up shared memory", t.Rank(), t.opts.SetupWait)
			}
			t.inner.Park(time.Millisecond)
		}
	}
	return nil
}

func (p *peer) close() {
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
		p.pidfd = -1
	}
	_ = unix.Munmap(p.area)
	p.area = nil
}
