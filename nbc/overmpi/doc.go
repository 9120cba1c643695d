// Package overmpi is the transport over MPI: nbc.Transport for ranks that
// mpirun started.
//
//	e, err := nbc.Start(overmpi.Open(overmpi.Options{}), device, nbc.Options{})
//
// It owns how a message's identity travels, the staging memory of borrowed
// receives, how the progress thread rests, and how one rank's giving up reaches
// the others. It must not know what is sent, nor any MPI handle (package mpi
// hides them).
//
// # Threads
//
// The thread that runs what Open returned, or that has called Move since, makes
// all MPI calls. Wake and Abort make none: what Abort has to tell leaves when that
// thread polls.
//
// # Identity of messages
//
// MPI has one tag of few bits (31 in Open MPI, 28 in MPICH 4, 15 promised)
// where nbc.Tag has four numbers. So MPI does not match the messages: this
// package does, by the whole nbc.Tag, with the table of nbc/internal/match.
// Whatever the number of requests and communicators that live together, and in
// whatever order the ranks start them, no two messages are taken for each other.
//
// Every message has an envelope, sent under MPI tag 0: the nbc.Tag and the length, 32 bytes.
// Small messages, up to 32 KiB, lie behind it. The data of larger ones leave directly from the
// user's memory, right before the envelope, under the MPI tag that it names; the receiver asks
// for them when it has read the envelope and has a receive to put them into. That is no extra
// round trip: the library's own request to send is there already.
//
// A ring of receives from any rank waits for envelopes. They are handled in the
// order in which MPI filled them, so the envelopes of a rank keep their order, and
// messages with equal nbc.Tags meet their receives in order. Small messages
// that nobody expects yet are copied; the data of large ones stay where they are.
//
// The MPI tags of data are counted from 1 to the library's bound and over again,
// for each ordered pair of ranks. MPI matches equal tags of a pair in order, so
// when an envelope names a tag whose last message has not been asked for yet, that
// message is received first, into memory of the transport, until its receive
// comes. This takes as many large messages between one pair as there are tags,
// sent while an older one finds no receive; with a bound of 32767 memory for
// it is hardly ever needed, and with any bound no rank waits for another's answer.
//
// A caller that executes a collective of few bytes by itself (nbc.Eager) sends and finds
// the same envelopes. MPI has mostly taken one when MPI_Isend returns, which
// MPI_Test tells at once; so its memory serves the next.
//
// A send completes when MPI has taken the envelope, and the data where they travel
// by themselves, as MPI_Isend means it.
//
// # Resting
//
// MPI cannot notify, so with operations under way Park backs off: it returns
// at once a number of times where the machine has cores to spare, then yields,
// then sleeps 20 µs and longer, up to 50 µs; with none it sleeps up to 5 ms,
// only to hear of another rank's giving up. With none but large messages under way, and
// other threads that want the core (a yield tells), it sleeps at once, up to 200 µs:
// some libraries need dozens of looks for a message, all of which would be taken from the
// ranks that have something to do. So it does where a yield has taken a millisecond, as to a
// thread that computes: for 32 times as long it does not yield again. Wake ends a sleep at once.
//
// # Ending
//
// Close waits for the other ranks, so that none takes away what another still
// needs, but not for ever, and hardly at all once something has failed: then
// MPI is left as it is, and the process should end with a non-zero status,
// whereupon mpirun ends those that are left.
package overmpi
