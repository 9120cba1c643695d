// Package shm is the transport between ranks of one node, through memory that
// they share. It lies over another transport, which carries what goes to other
// nodes:
//
//	t, err := shm.New(inner, shm.Options{})
//
// It owns the memory that Alloc returns, how two ranks of a node agree who
// copies a message, and how a rank that waits sleeps. It must not know what is
// sent, nor which transport lies below. Outside of 64-bit Linux New returns the
// inner transport itself.
//
// # Memory
//
// Each rank has one memfd, which holds its control area and then
// its arena: address space for as much memory as the machine has, of which only
// what is used takes pages. Every other rank of the node maps it once, at
// set-up, by opening /proc/PID/fd/FD. Alloc takes a range of the own arena;
// peers see it at once, under an address that differs by a constant, and Free
// punches a hole. So neither allocating nor sending from new memory needs a
// call on any other rank. An MPI shared window would: its creation is
// collective over the node, as is its end, and every allocation of every
// buffer would wait for the slowest rank. A memfd counts against the memory of
// its process, not against the size of /dev/shm, and nothing is left behind by
// a process that is killed. Allocations of 2 MiB and more are huge pages where
// the system has them for who asks (MADV_COLLAPSE, Linux 6.1), present at once: with small
// ones copies around the caches take up to 1.4 times as long, and each is a fault
// when it is first touched.
//
// Memory in the arena is called registered. Messages in any other memory come on
// one of three ways:
//
//   - Sender and receiver copy it together, each with the system's help
//     (process_vm_writev, process_vm_readv), which moves about half of what a plain copy
//     does. So large receives are served where each rank has a core and the
//     system allows it (Yama, seccomp, other users may be in the way).
//   - The receiver reads it, likewise with the system's help: what it borrows, to add or to pass on, to where the sum
//     goes if that is elsewhere than where it was (nbc.Lander), else into memory that stays in its cache, and, where ranks
//     share cores, what else there is, each of a collective that is no larger than the caches. The sender need not have its turn for it.
//   - Everywhere else the sender copies it into its
//     arena, from where the receiver takes it: a message of up to 64 KiB at once,
//     others when the receiver asks, or before it does if it always asks. A receiver asks
//     for half of its core's cache at most, so that the second copy is one within caches.
//     Several receivers of the same bytes share one copy.
//
// # Security
//
// Ranks of one node trust each other: each may write to the other's registered
// memory, and read and write its private memory, as far as the system lets
// processes of one user do that. Where Yama asks for it
// (kernel.yama.ptrace_scope=1), a rank lets every process of its user attach to
// it and read its memory (PR_SET_PTRACER_ANY), from set-up until the last
// transport of its process is closed: the system takes one process or all. To
// avoid that, set ptrace_scope to 2, and all buffers that are not registered are
// copied twice; or do without this package (SCAFFE_SHM=off).
//
// # Messages
//
// Each side of a message tells the other, by a descriptor in a ring, where its
// memory lies, unless it has heard of the other side's before. The later of
// the two copies: a receiver that finds the sender's descriptor gets the bytes,
// a sender that finds the receiver's puts them; then it says "done". Where both
// were told (they cross), the receiver gets, unless it cannot. The copying is therefore spread
// over ranks: it falls to those that come last.
//
// Messages of 128 KiB and more that are not borrowed are copied by both of their ranks where each has a
// core, since one core moves less than memory could: the later one tells the other,
// and each takes the next piece of 64 KiB that is left, the receiver from the
// beginning, the sender from the end. Where the system helps, whose every call costs about 1 µs, it takes a quarter of the
// message at once, 1 MiB at most. Pieces are copied through the caches, but around
// them where the collective is larger than they are (nbc.Expecter, kernels.StreamFrom).
//
// A borrowing receive never
// tells; it hands out the sender's registered memory itself, and its Release
// says "done". Messages of up to 4 KiB travel with the descriptor: within it up to 32 bytes,
// behind it up to 256, in one of the ring's blocks beyond. They ask for no answer. Of registered memory only
// those of up to 2 KiB do where each rank has a core and the sender waits for its receiver in any case; the others are read in place.
//
// A caller that executes its collective alone (nbc.Eager) writes and reads the rings itself, in
// the same words: Put tells where a message lies, Take hands that memory out,
// or a copy made with the system's help, and Taken says "done". Messages are of less than 128 KiB or, where each rank has a core, what is sent and what is added
// of up to 256: a sender who waits alone copies its part of what a receiver's loop only moves (Lent). Where the receiver can read
// neither (or where ranks share cores), Put makes a copy in registered memory, and the sender
// need not wait for "done". A copy's memory is used again as soon as its receiver is finished
// with it, and so stays in the caches.
//
// A receive is told of only where the sender cannot mistake for which of
// several messages with one tag it is: not while an earlier one with that tag,
// of which the sender was not told, is under way.
//
// There is one ring for each ordered pair of ranks, with one writer and one
// reader; a full descriptor is marked by its position, so that looking into an
// empty ring touches one cache line that is not being written.
//
// # Resting
//
// A rank with nothing to do looks again for a short while, offers its core to
// others, then sleeps on a futex; where each rank has a core it looks for longer if its
// caller only waits, and offers the core for longer unless another thread takes it. A rank that writes to one of its rings wakes it
// if it sleeps, and only then. It sleeps 5 ms at most, to look after what
// cannot wake it: notices of the inner transport, and whether the peers'
// processes still exist. With operations of the inner transport under way that
// is 50 µs.
//
// # Ending
//
// A rank that gives up marks the control areas of the node's other ranks, so
// that they learn at once, and tells all by the inner transport. Close ends
// with the inner transport's, which waits for the others. Memory that was not
// freed stays mapped, and memory in the Go heap that a peer may still write to,
// because it was stopped or has not heard of the failure, is kept.
package shm
