// Package nbc executes schedules: the non-blocking engine.
//
// An Engine is one rank's end of it. A schedule is compiled to a Plan, a Plan
// bound to buffers is a Request, and a Request is started, tested and waited
// for, any number of times:
//
//	e, err := nbc.Start(open, device.CPU(kernels), nbc.Options{})
//	plan, err := nbc.Compile(s)
//	r, err := e.Prepare(plan, nbc.Binding{Name: "reduce#1", In: in, Out: out, Datatype: mem.Float32, Op: mem.Sum})
//	err = r.Start()
//	…                  // the caller computes; the collective progresses meanwhile
//	err = r.Wait(ctx)
//	r.Close()
//
// Most callers do not come here: package collectives has the calls.
//
// It owns progress, completion, deadlines and what an error says. It must not
// know any algorithm by name, what a buffer means, or which network there is:
// messages go through a Transport, additions through a Device.
//
// # The progress loop
//
// Each engine has one goroutine, locked to its OS thread, that turns the loop:
// the progress thread, which S-Caffe (section 4.3) calls the helper thread. So
// nothing depends on the caller calling Test. A caller that only waits may turn
// the loop in its place (Request.Run): one thread at a time makes all calls to
// the transport and the device, which is MPI_THREAD_SERIALIZED.
//
// A turn of the loop takes what was submitted, begins the ops that wait for
// nothing any more, and asks transport and device what has ended; an op that ends
// makes those that waited for it ready. Where nothing moves, the transport lets
// the thread rest (Transport.Park), and Wake ends that. What is ready is decided
// by an executor that knows no transport, device, thread or time; a turn's cost
// does not depend on how many requests wait.
//
// A collective of few bytes would spend its time on the
// loop itself. A blocking call of one is executed by its caller op after op, over a
// transport that is Eager, without posting or waking; if a message does not
// come soon, the loop takes over in the middle. A small collective that is started and
// waited for later is begun by its caller too, which goes on with it in Test and Wait;
// the engine's goroutine looks after it when its caller has not for a nap.
//
// A RecvReduce is a borrowed receive: the transport shows where the message
// lies (staging memory, or the sender's own memory within a process), the
// device adds it from there, and Release gives it back; what is copied for that is best copied to where
// the sum goes, if that is elsewhere than where it was (Lander). Messages that are added to one
// range, one after the other, are received together, and added in one pass where the
// device can (Folder), in the schedule's order.
//
// # Memory
//
// The buffers of a request, and its scratch memory, may lie in another memory than the host's where the device
// is an Accelerator of it and the transport a Carrier (Engine.Serves). What is borrowed then lies there too. Nothing tells a loop
// that a GPU has done its work, so that it looks every AcceleratorRest.
//
// # Identity
//
// A message is known by what it is, Tag{Comm, Instance, Message, Fingerprint}, never
// by the order of calls. Ranks may start requests in different orders. What they
// must agree on is the numbering: package collectives counts the collectives that
// are created, persistent requests apart from the others (their numbers begin with
// a p in errors: reduce#p7). A second open request of one communicator and number
// is refused by Prepare.
//
// # Windows
//
// From one rank to another at most SendWindow messages of one request are being sent (more to
// a rank of the same node, see CompileOn) and Window received. Package schedule/check proves
// schedules free of deadlock under a window of one, the strictest.
//
// All requests together have at most SendWindow large sends under way to a rank of
// another node; the rest wait in the order of Binding.Priority and of their
// requests' starts. What is needed soon overtakes what was started earlier,
// between two messages. Of requests with a Binding.Credit so many bytes are under way to all other nodes
// together. What has arrived is added in the same order.
//
// # Failure
//
// An engine fails as a whole: what one request's peer will do next is not
// known any more, so all requests end, with the same cause, and none starts.
// Causes are
//
//   - an error of the transport or the device, with the op it came up in;
//   - *DeadlineError: a request did not end in time, nor longer where the ranks
//     that it waits for answer that they will come (Options.MaxDeadline). It lists the edges that
//     block it on this rank, "rank 5 waits for chunk 7 of reduce#812 from rank 4",
//     and what other ranks say of it, "rank 4 has not entered reduce#812";
//   - *MismatchError: another rank called a different collective under the same
//     number;
//   - *AbortError: another rank gave up (its Engine.Abort, or its own failure)
//     and says why;
//   - ErrClosed: the engine was closed.
//
// Waiting with a context that ends is not a failure: the request continues,
// and its buffers are still in use.
//
// # Diagnosis
//
// A request that has not moved for half a second (less where its deadline is
// short) asks the ranks that it waits for, over the transport's notices
// (Notifier), and again from time to time. Progress loops answer, so a rank whose
// caller computes or has not come yet answers too. Once half of the deadline has
// passed, questions follow the chain: to whom the asked rank waits for, in the
// same collective, or in another where it has not come to this one; where they come
// back to the asking rank, they go on with what else it waits for. So each
// rank's error leads to the culprit: a rank that has not entered the collective,
// has left it, has failed, or does not answer (it is stopped, its network is gone,
// or a function given to Do keeps its thread). A request that moves costs nothing
// of this: no message, no allocation, no extra clock read.
//
// When the deadline has passed, everyone is asked a last time. Ranks that have
// answered before are known to live, and are waited for longer than a rank that
// never has: on a busy machine the rank to be named is the one that holds the
// others up, not one that was slow to answer. Where it turns out that the ranks at
// the end of the chain have just not come yet, there is no failure: the collective
// is waited for, and judged again and again, until Options.MaxDeadline.
//
// What is guaranteed where ranks call different collectives under one number, by
// Binding.Call, type or op:
//
//   - Messages of different calls do not meet: transports compare all of
//     Tag.Fingerprint. Nothing is added up or overwritten; the request stalls,
//     asks, and ends on both ranks with a *MismatchError that prints both calls,
//     about half a second later.
//   - The MPI library's own collectives have no fingerprint in their messages. A
//     mismatch among them is found where it stalls; where it does not, the library
//     mixes the data or reports an error itself.
//   - In the library's blocking form (LibraryCall.Blocking) not even a stall ends in
//     an error: a watchdog ends the rank's process.
//   - Ranks that exchange no message in either call do not notice each other.
//   - Without a Notifier, messages do not meet either, and the end is a
//     *DeadlineError.
//
// # Adding to it
//
// A transport implements Transport and passes package nbc/transporttest; there
// are nbc/inproc (ranks of one process), nbc/overmpi (MPI), nbc/shm (ranks of one
// node, over another transport for the rest), nbc/staging (from and to a GPU's memory, over another
// transport) and nbc/faulty (one that misbehaves, for tests). A device
// implements Device; its Reduce either does the work at once or reports it
// through Poll later, as a GPU would.
package nbc
