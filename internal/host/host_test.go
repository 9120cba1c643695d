package host_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/internal/host"
)

func TestCoreSet(t *testing.T) {
	a, b := host.CoreSet{0: 0b0011}, host.CoreSet{0: 0b0100, 15: 1 << 63}
	if a.Overlaps(b) || !a.Overlaps(a) || a.Overlaps(host.CoreSet{}) {
		t.Error("which sets overlap is wrong")
	}
	if both := a.Or(b); both.Count() != 4 || !both.Overlaps(a) || !both.Overlaps(b) {
		t.Errorf("both have %d cores, want 4", both.Count())
	}
}

func TestAllowed(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Skip(err)
	}
	if got := host.Allowed().Count(); got == 0 || got > host.Cores() {
		t.Errorf("this thread may run on %d of %d cores", got, host.Cores())
	}
}

func TestKernel(t *testing.T) {
	_, err := os.Stat("/proc/sys/kernel/random/boot_id")
	if k := host.Kernel(); k < 0 || k != host.Kernel() || (k == 0) != (err != nil) {
		t.Errorf("kernel %d, then %d (%v)", k, host.Kernel(), err)
	}
}

func TestCore(t *testing.T) {
	if got := host.Core(); got < -1 || got >= host.Cores() {
		t.Errorf("this thread runs on core %d of %d", got, host.Cores())
	}
}
