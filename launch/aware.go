package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
)

// awareCommand, as the first argument of a program, has it try whether the MPI library takes pointers to the memory of the
// GPU whose number follows.
const awareCommand = "launch-mpi-aware"

// awareWithin is how long that may take.
const awareWithin = 30 * time.Second

// TryAware says why the MPI library does not take pointers to the memory of the GPU of a number, though it says so. It is tried in a process of
// its own, a world of one rank: a library that is wrong about it crashes.
func TryAware(gpu int) error {
	program, ok := again()
	if !ok {
		return errors.New("it cannot be tried in a process of its own, since the program does not call launch.Main")
	}
	ctx, cancel := context.WithTimeout(context.Background(), awareWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, awareCommand, strconv.Itoa(gpu))
	cmd.Env = mpi.Alone(os.Environ())
	out, err := cmd.CombinedOutput()
	said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("a process that tried hung for %v", awareWithin)
	case err != nil && cmd.ProcessState.Exited() && said != "":
		return fmt.Errorf("a process that tried says: %s", said)
	case err != nil:
		return fmt.Errorf("a process that tried ended with: %w", err)
	}
	return nil
}

// What is sent to try: a message that goes at once, and one that waits until it is received.
var awareSizes = []int{64, 4 << 20}

// aware is the process that tries.
func aware(gpu string) error {
	runtime.LockOSThread()
	world, err := mpi.Start()
	if err != nil {
		return err
	}
	if world.Size() != 1 {
		return fmt.Errorf("started alone, it is one of %d ranks", world.Size())
	}
	index, err := strconv.Atoi(gpu)
	if err != nil {
		return err
	}
	d, err := cuda.Open(index)
	if err != nil {
		return err
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	for _, n := range awareSizes {
		if err := sendToSelf(world, d, stream, n); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}

// sendToSelf sends n bytes of a GPU's memory from this rank to itself. What it takes goes back with the process.
func sendToSelf(world *mpi.World, d *cuda.Device, stream *cuda.Stream, n int) error {
	host, err := d.AllocHost(2 * n)
	if err != nil {
		return err
	}
	var on [2]mem.Buffer
	for i := range on {
		if on[i], err = d.Alloc(n); err != nil {
			return err
		}
	}
	sent, come := mem.Bytes(host)[:n], mem.Bytes(host)[n:]
	for i := range sent {
		sent[i] = byte(i*7 + i>>8)
	}
	clear(come)
	ended := func(err ...error) error { return errors.Join(errors.Join(err...), stream.Synchronize(probeWithin)) }
	if err := ended(stream.Copy(on[0], host.Slice(0, n)), stream.Copy(on[1], host.Slice(n, n))); err != nil {
		return err
	}
	requests := world.NewRequests()
	const tag = 1
	if err := errors.Join(world.Comm().Irecv(requests, 0, on[1].Pointer(), n, 0, tag), world.Comm().Isend(requests, 1, on[0].Pointer(), n, 0, tag)); err != nil {
		return err
	}
	var done [2]mpi.Done
	for left := len(done); left > 0; {
		k, err := requests.Testsome(done[:])
		if err != nil {
			return err
		}
		for _, d := range done[:k] {
			if d.Err != nil {
				return d.Err
			}
		}
		left -= k
	}
	if err := ended(stream.Copy(host.Slice(n, n), on[1])); err != nil {
		return err
	}
	if !bytes.Equal(sent, come) {
		return errors.New("what is received is not what was sent")
	}
	return nil
}
