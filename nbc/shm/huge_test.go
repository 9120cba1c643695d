//go:build linux && (amd64 || arm64)

package shm

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
)

// hugeIn returns how many KiB of the mapping that holds p are huge pages.
func hugeIn(t *testing.T, p unsafe.Pointer) (kib int) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	var from, to uintptr
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= uintptr(p) && uintptr(p) < to
		} else if inside && strings.HasPrefix(lines.Text(), "ShmemPmdMapped:") {
			fmt.Sscanf(lines.Text(), "ShmemPmdMapped: %d", &kib)
		}
	}
	return kib
}

// Registered memory is huge pages, and zero, where the system makes some of memory that
// is there already, page by page.
func TestRegisteredMemoryIsHuge(t *testing.T) {
	open := func() *arena {
		a, err := openArena(newLayout(1, 16*hugePage), Options{})
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { unmapFile(a.mapping) })
		return a
	}
	a := open()
	all, err := a.take(2 * hugePage)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mem.Bytes(all) {
		mem.Bytes(all)[i] = 1
	}
	if err := unix.Madvise(mem.Bytes(all), unix.MADV_COLLAPSE); err != nil || !a.huge {
		t.Skipf("the system makes no huge pages of shared memory: %v", err)
	}
	a = open()
	b, err := a.alloc(2*hugePage + 5000)
	if err != nil {
		t.Fatal(err)
	}
	if got := hugeIn(t, b.Pointer()); got < 2*hugePage>>10 {
		t.Errorf("%d KiB of %d bytes are huge pages", got, b.Len())
	}
	for i, v := range mem.Bytes(b) {
		if v != 0 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
}
