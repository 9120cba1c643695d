//go:build linux && (amd64 || arm64)

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// magic names the layout of control areas; every change of it changes this.
const magic = 0x5caffe0000000006

// New lays the transport over inner. All ranks call it together, on the
// goroutine and thread that make all later calls. Where this rank is alone on
// its node, or inner does not know (nbc.Topology), it returns inner itself. Two
// ranks of a node that cannot reach each other's memory use inner.
// With an error, inner is still the caller's to close.
func New(inner nbc.Transport, opts Options) (nbc.Transport, error) {
	placed, ok := inner.(nbc.Topology)
	if !ok {
		return inner, nil
	}
	t := &Transport{
		inner: inner, opts: opts, nodes: placed.Nodes(),
		byRank: make([]*peer, inner.Size()), lent: map[nbc.Token]*op{}, copies: map[mem.Buffer]*staging{},
		askRoom: kernels.PrivateCache() / 2,
	}
	t.eager, _ = inner.(nbc.Eager)
	t.bulk, _ = inner.(interface{ Bulk() bool })
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
	if what := t.missingCapability(); what != "" && opts.Warn != nil && inner.Rank() == t.local[0] {
		opts.Warn(what)
	}
	if t.arena == nil {
		t.forbidReading()
		return inner, nil
	}
	return t.complete(), nil
}

// hello is what a rank tells the others of its node first.
type hello struct {
	magic, nonce uint64
	pid, fd      uint64
	arena, size  uint64       // of its layout
	address      uint64       // of its header, in its process
	local        uint64       // its place among the node's ranks
	rivals       uint64       // ranks of other nodes that may run on its cores (nbc.Hosted)
	cores        host.CoreSet // on which its thread may run
}

const helloWords = 9 + len(host.CoreSet{})

func (t *Transport) setUp() error {
	if t.opts.SetupWait == 0 {
		t.opts.SetupWait = time.Minute
	}
	t.allowReading()
	t.layout = newLayout(len(t.local), room(t.opts.Room, len(t.local)))
	if t.arena, t.why = openArena(t.layout, t.opts); t.arena != nil { // otherwise it says hello all the same, for the others to know
		t.own = headerAt(t.arena.base())
		t.own.magic, t.own.nonce = magic, rand.Uint64()
		t.claims = t.layout.claimsAt(t.arena.base())
	}
	if err := t.exchangePeers(); err != nil {
		t.teardown()
		return err
	}
	return nil
}

// missingCapability says what this rank cannot do with the others of its node; nothing
// where it can do all.
func (t *Transport) missingCapability() string {
	private := 0
	for _, p := range t.peers {
		if p.vm {
			private++
		}
	}
	switch others := len(t.local) - 1; {
	case t.arena == nil:
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

// exchangePeers makes the ranks of the node peers.
func (t *Transport) exchangePeers() error {
	me := slices.Index(t.local, t.Rank())
	mine := t.hello(me)
	hellos, err := t.gather(0, mine.bytes())
	if err != nil {
		return err
	}
	peers, all, rivals := t.openPeers(me, mine, hellos)
	everywhere, ranks := all.Count(), len(t.local)+rivals
	t.rest.open(ranks, mine.cores.Count(), everywhere)
	t.shares = everywhere >= ranks && !t.opts.forbidShare || t.opts.forceShare
	return t.agreeOnReach(me, peers)
}

// hello returns what this rank, at place me of the node's, tells the others.
func (t *Transport) hello(me int) hello {
	h := hello{local: uint64(me), cores: host.Allowed()}
	if hosted, ok := t.inner.(nbc.Hosted); ok {
		h.rivals = uint64(hosted.Rivals())
	}
	if t.arena != nil {
		h.magic, h.nonce = magic, t.own.nonce
		h.pid, h.fd = uint64(os.Getpid()), uint64(t.arena.fd)
		h.arena, h.size = uint64(t.layout.arena), uint64(t.layout.size)
		h.address = uint64(uintptr(t.arena.base()))
	}
	return h
}

// openPeers opens the memory of the node's other ranks, by place; nil for one
// where that does not work. It also returns on which cores the node's ranks may run, and
// how many rivals they have there at most.
func (t *Transport) openPeers(me int, mine hello, hellos [][]byte) (peers []*peer, all host.CoreSet, rivals int) {
	peers = make([]*peer, len(t.local))
	for i, r := range t.local {
		h := mine
		if i != me {
			h = readHello(hellos[i])
			peers[i] = t.open(r, i, me, h)
		}
		all, rivals = all.Or(h.cores), max(rivals, int(h.rivals))
	}
	return peers, all, rivals
}

// What a rank can do with another's memory.
const (
	reachShared  = 1 << iota // it has mapped it
	reachPrivate             // it may read and write what is not shared
)

// agreeOnReach keeps the peers that reach this rank as it reaches them: both do,
// or neither tries.
func (t *Transport) agreeOnReach(me int, peers []*peer) error {
	reach := make([]byte, len(peers))
	for i, p := range peers {
		if p != nil {
			reach[i] = reachShared
			if p.vm {
				reach[i] |= reachPrivate
			}
		}
	}
	answers, err := t.gather(1, reach)
	if err != nil {
		return err
	}
	for i, p := range peers {
		if p == nil {
			continue
		}
		theirs := answers[i][me]
		if theirs&reachShared == 0 {
			p.close()
			continue
		}
		p.vm = p.vm && theirs&reachPrivate != 0
		t.peers = append(t.peers, p)
		t.byRank[p.rank] = p
	}
	return nil
}

func (h hello) bytes() []byte {
	b := make([]byte, 0, 8*helloWords)
	for _, x := range []uint64{h.magic, h.nonce, h.pid, h.fd, h.arena, h.size, h.address, h.local, h.rivals} {
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
	h := hello{magic: x[0], nonce: x[1], pid: x[2], fd: x[3], arena: x[4], size: x[5], address: x[6], local: x[7], rivals: x[8]}
	copy(h.cores[:], x[9:])
	return h
}

// open maps the memory of a rank of this node; nil where that does not work.
func (t *Transport) open(rank, local, me int, h hello) *peer {
	if t.arena == nil {
		return nil
	}
	b, err := t.mapPeer(h)
	if err != nil {
		t.why = fmt.Errorf("the memory of rank %d: %w", rank, err)
		return nil
	}
	p := &peer{
		rank: rank, local: local, pid: int(h.pid), pidfd: -1,
		mapping: b, arena: int(h.arena), header: headerAt(unsafe.Pointer(unsafe.SliceData(b))),
	}
	p.claims = t.layout.claimsAt(unsafe.Pointer(p.header))
	p.in = t.layout.ringAt(t.arena.base(), local)
	p.out = t.layout.ringAt(unsafe.Pointer(p.header), me)
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
	if s.Mode&unix.S_IFMT != unix.S_IFREG || uint64(s.Size) != h.size || h.arena >= h.size || h.arena < uint64(unsafe.Sizeof(header{})) {
		return nil, errors.New("is another file")
	}
	b, err := mapFile(fd, layout{arena: int(h.arena), size: int(h.size)})
	if err != nil {
		return nil, err
	}
	if g := headerAt(unsafe.Pointer(unsafe.SliceData(b))); g.magic != magic || g.nonce != h.nonce {
		unmapFile(b)
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
	tag := nbc.Tag{Comm: nbc.SetupComm, Message: round}
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
	unmapFile(p.mapping)
	p.mapping = nil
}
