// Package overmpi is the transport over MPI: nbc.Transport for ranks that
// mpirun started.
//
//	e, err := nbc.Start(overmpi.Open(overmpi.Options{}), device, nbc.Options{})
//
// It owns how a message's identity becomes an MPI tag, the staging memory of
// borrowed receives, how the progress thread rests, and how one rank's giving
// up reaches the others. It must not know what is sent, nor any MPI handle
// (package mpi hides them).
//
// # Threads
//
// The thread that runs what Open returned makes all MPI calls; Wake and Abort
// hand over to it.
//
// # Tags
//
// MPI has one tag of few bits (31 in Open MPI, 28 in MPICH 4, 15 promised)
// where nbc.Tag has four numbers. The bits are split: a quarter, six at most,
// for the fingerprint of the call, two fifths of the rest for the message within
// a schedule, seven tenths of what is left for the instance, what remains for the
// communicator; of each number the low bits go in. So with Open MPI 1024
// messages from one rank to another in one schedule, 1024 instances in a row on
// one communicator and 32 communicators have tags of their own; with MPICH 512,
// 512 and 16. (The engine has no more than nbc.Window messages of a schedule
// under way between two ranks and posts them in order, so a schedule may have
// any number.)
//
// Calls that differ in type or op alone differ in the six bits. Of other
// differences the bits miss one in 64, and what they miss is found by the length
// of a message, or, where that is equal too, not at all.
//
// Messages whose tags are equal after that are matched in the order in which
// they are sent and received, as MPI's rules say. That is right where both ends
// post them in one order, and wrong where priorities reorder them. Therefore
// two operations with one peer whose identities differ but whose tags do not
// may not be under way together: the later one is an error, which says so. The
// limit of this guard: it sees one rank's operations at a time. A rank more
// than an instance window ahead of its peer whose earlier sends have all ended
// already is not seen; a collective that needs an answer from the peer cannot
// get that far ahead.
//
// # Resting
//
// MPI cannot notify, so with operations under way Park backs off: it returns
// at once a number of times where the machine has cores to spare, then yields,
// then sleeps 20 µs and longer, up to 50 µs; with none it sleeps up to 5 ms,
// only to hear of another rank's giving up. Wake ends a sleep at once.
//
// # Ending
//
// Close waits for the other ranks, so that none takes away what another still
// needs, but not for ever, and hardly at all once something has failed: then
// MPI is left as it is, and the process should end with a non-zero status,
// whereupon mpirun ends those that are left.
package overmpi
