//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// handed has a handle for a process that doubles what it names.
const handed = "SCAFFE_TEST_DOUBLE_IMPORTED"

// keeps has it keep the memory open.
const keeps = "SCAFFE_TEST_KEEP_IMPORTED"

// doubleImported is that process.
func doubleImported(text string) error {
	var h cuda.Handle
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	d, err := cuda.Open(0)
	if err != nil {
		return err
	}
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	b, err := d.Import(h)
	if err != nil {
		return err
	}
	if os.Getenv(keeps) != "" { // open until the other process says
		fmt.Println("open")
		_, err := os.Stdin.Read(make([]byte, 1))
		return err
	}
	err = errors.Join(s.Reduce(mem.Int32, mem.Sum, b, b, b), s.Synchronize(within), d.CloseImport(b))
	if err := s.Reduce(mem.Int32, mem.Sum, b, b, b); err != nil {
		return err
	}
	if s.Synchronize(within) == nil {
		return errors.New("memory that was given up can be used")
	}
	return err
}

func double(h cuda.Handle) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), handed+"="+string(text))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// One process's memory is another's, under a handle: what the other has written is there, and the handle is worth nothing
// to the process itself, without its memory, or as other bytes.
func TestMemoryOfAnotherProcess(t *testing.T) {
	d, s := open(t)
	const n = 5000
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	host, err := d.AllocHost(n)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.FreeHost(host); err != nil {
			t.Error(err)
		}
	}()
	copy(mem.Bytes(host), bytes.Repeat([]byte{3, 1, 0, 0}, n/4))
	if err := errors.Join(s.Copy(b, host), s.Synchronize(within)); err != nil {
		t.Fatal(err)
	}
	h, err := d.Export(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := double(h); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Copy(host, b), s.Synchronize(within)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem.Bytes(host), bytes.Repeat([]byte{6, 2, 0, 0}, n/4)) {
		t.Errorf("the memory holds %v …, want it doubled", mem.Bytes(host)[:8])
	}

	const forbidden = "import 5000 bytes of another process (containers may forbid it): "
	fails := func(name string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	_, err = d.Import(h)
	fails("the process itself", err, "cuda:0 (stand-in 0): "+forbidden+"invalid device context")
	_, err = d.Import(cuda.Handle{Bytes: n})
	fails("other bytes", err, forbidden+"invalid argument")
	_, err = d.Import(cuda.Handle{Memory: h.Memory})
	fails("no bytes", err, "import: 0 bytes")
	_, err = d.Export(host)
	fails("the host's", err, "export: a buffer of 5000 bytes in host memory")
	_, err = d.Export(b.Slice(4, 8))
	fails("a part", err, "export 8 bytes: invalid argument")
	fails("what was not imported", d.CloseImport(b), "close imported memory: invalid argument")
	_, err = d.AllocHost(-1)
	fails("less than none", err, "allocate pinned memory: -1 bytes")
	tell(t, "fail=cuMemHostAlloc:1:2")
	_, err = d.AllocHost(64)
	fails("no pinned memory", err, "allocate 64 bytes of pinned memory: out of memory")
	if err := d.Free(b); err != nil {
		t.Fatal(err)
	}
	fails("memory that is no more", double(h), "invalid resource handle")
}

// Memory that another process has open must not be freed: the stand-in fails the device. What is shared stays, then, until all
// have closed it, and is the GPU's again after that.
func TestSharedMemoryStays(t *testing.T) {
	d, _ := open(t)
	const n = 600 << 20 // of a gigabyte
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	id, at, err := d.Find(b.Slice(100, 50))
	if err != nil || at != 100 {
		t.Fatalf("found in allocation %d at byte %d: %v", id, at, err)
	}
	freed := 0
	h, err := d.Share(id, func() { freed++ })
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), handed+"="+string(text), keeps+"=1")
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := d.Free(b); err != nil || freed != 1 {
		t.Errorf("freed %d times: %v", freed, err)
	}
	if _, err := d.Alloc(n); err == nil || !strings.Contains(err.Error(), "629145600 that were freed are still open in other processes") {
		t.Errorf("memory that is still open: %v", err)
	}
	if _, _, err := d.Find(b); err == nil {
		t.Error("what was freed is found")
	}
	if err := d.Unshare(id); err == nil { // too soon
		t.Error("memory that another process has open can be freed")
	}
	tell(t, "broken=0")
	if _, err := in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := d.Unshare(id); err != nil {
		t.Errorf("memory that nobody has open any more: %v", err)
	}
	other, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Unshare(id); err == nil {
		t.Error("what is not shared is unshared")
	}
	if err := d.Free(other); err != nil {
		t.Error(err)
	}
}

// A GPU's kernels read another one's memory where that was asked for and can be, and nothing else.
func TestReach(t *testing.T) {
	d, s := open(t)
	other, err := cuda.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a, err1 := d.Alloc(256)
	b, err2 := other.Alloc(256)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	tell(t, "peers=0")
	if err := d.Reach(1); err == nil || !strings.Contains(err.Error(), "cuda:0 (stand-in 0): reach the memory of cuda:1: the two have no peer access") {
		t.Errorf("no peer access: %v", err)
	}
	tell(t, "peers=1")
	if can, err := cuda.CanReach(0, 1); err != nil || !can {
		t.Errorf("can reach: %v, %v", can, err)
	}
	if err := errors.Join(s.Copy(a, b)); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(within); err == nil {
		t.Error("memory that is not reached is read")
	}
	tell(t, "broken=0")
	if err := errors.Join(d.Reach(1), d.Reach(1), d.Reach(0), s.Copy(a, b), s.Synchronize(within), d.Free(a), other.Free(b)); err != nil {
		t.Error(err)
	}
	if on, known := cuda.MPS(0); on || !known {
		t.Errorf("MPS %v, known %v", on, known)
	}
}
