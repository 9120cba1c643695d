//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// The kernels of these tests are those that a GPU runs, from the same source, compiled for the host.

const within = time.Minute

func open(t *testing.T) (*cuda.Device, *cuda.Stream) {
	t.Helper()
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, s
}

// tell changes what the stand-in is like, until the test ends.
func tell(t *testing.T, text string) {
	t.Helper()
	cudatest.Change(t, library, text, asUsual)
}

// asUsual undoes what tests tell the stand-in.
const asUsual = "mode=0 delay=5 fail=none broken=0 peers=1 queues=0"

// area is device memory with room around what is used, what it should hold, and what it does.
type area struct {
	t                 *testing.T
	s                 *cuda.Stream
	device, host, got mem.Buffer
}

const guard = 0xa5

func newArea(t *testing.T, d *cuda.Device, s *cuda.Stream, n int) *area {
	t.Helper()
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	a := &area{t, s, b, mem.Alloc(n), mem.Alloc(n)}
	t.Cleanup(func() {
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
		a.host.Free()
		a.got.Free()
	})
	return a
}

// put returns data at off in both memories; in the device's it will be when the stream has been
// synchronized, before which the host's must stay.
func (a *area) put(off int, data []byte) (device, host mem.Buffer) {
	a.t.Helper()
	all := mem.Bytes(a.host)
	for i := range all {
		all[i] = guard
	}
	copy(all[off:], data)
	if err := a.s.Copy(a.device, a.host); err != nil {
		a.t.Fatal(err)
	}
	return a.device.Slice(off, len(data)), a.host.Slice(off, len(data))
}

// fetch fills what the areas hold.
func fetch(areas ...*area) {
	var err error
	for _, a := range areas {
		a.t.Helper()
		err = errors.Join(err, a.s.Copy(a.got, a.device))
	}
	if err := errors.Join(err, areas[0].s.Synchronize(within)); err != nil {
		areas[0].t.Fatal(err)
	}
}

// check compares the areas with what they should hold, guards and all, and says what was done.
func check(what string, areas ...*area) {
	fetch(areas...)
	for k, x := range areas {
		x.t.Helper()
		want := mem.Bytes(x.host)
		for i, g := range mem.Bytes(x.got) {
			if g != want[i] {
				x.t.Fatalf("%s: area %d: byte %d is %#x, want %#x", what, k, i, g, want[i])
			}
		}
	}
}

// Every datatype and operator at addresses that are whole lines, that lie alike in lines, that are whole elements, and that are
// nothing, with shared buffers, and with every special number beside every other: the bits of kernels.CPU.
func TestReduceHasTheBitsOfTheCPU(t *testing.T) {
	cpu, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	d, s := open(t)
	const most = 3000
	areas := [3]*area{}
	for i := range areas {
		areas[i] = newArea(t, d, s, 8*most+64)
	}
	r := rand.New(rand.NewPCG(1, 13))
	for _, dt := range mem.Datatypes {
		size, special := dt.Size(), kernelstest.Specials[dt]
		for _, op := range mem.OpsOf(dt) {
			lengths := []int{0, 1, 3, 15, 16, 17, 64, 333, len(special) * len(special), most}
			if kernels.Alike(dt, op) != dt { // the kernel is tested with another type
				lengths = []int{17, len(special) * len(special)}
			}
			for i, n := range lengths {
				for _, at := range [][3]int{{0, 0, 0}, {4 * size, 4*size + 16, 4*size + 32}, {0, size, 3 * size}, {1, 2, 7}, {5, 5, 21}} {
					var dev, host [3]mem.Buffer
					for k := range areas {
						data := make([]byte, n*size)
						kernelstest.Fill(r, dt, data)
						if n == len(special)*len(special) {
							for e := range n {
								kernelstest.SetElement(size, data, e, special[[3]int{0, e / len(special), e % len(special)}[k]])
							}
						}
						dev[k], host[k] = areas[k].put(at[k], data)
					}
					dst, a, b := 0, 1, 2
					switch i % 4 {
					case 1:
						dst = 1
					case 2:
						dst = 2
					case 3:
						dst, b = 1, 1
					}
					what := fmt.Sprintf("%v of %d %v at %v, dst %d, a %d, b %d", op, n, dt, at, dst, a, b)
					if err := errors.Join(s.Reduce(dt, op, dev[dst], dev[a], dev[b]), s.Synchronize(within), cpu.Reduce(dt, op, host[dst], host[a], host[b])); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					check(what, areas[:]...)
				}
			}
		}
	}
}

// Several operands, by one kernel where that can be: whole lines, elements, addresses of nothing, every count, and every special number beside every
// other: the bits of one addition after the other on the CPU.
func TestSeveralOperandsHaveTheBitsOfOneAfterTheOther(t *testing.T) {
	cpu, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	d, s := open(t)
	const most = 2 * cuda.Operands
	r := rand.New(rand.NewPCG(14, 13))
	var areas [most + 1]*area // the last for a sum that is none of the operands
	for i := range areas {
		areas[i] = newArea(t, d, s, 8*3000+64)
	}
	for _, c := range []struct {
		dt mem.Datatype
		op mem.Op
	}{
		{mem.Float32, mem.Sum},
		{mem.Float64, mem.Sum},
		{mem.Float16, mem.Sum},
		{mem.BFloat16, mem.Sum},
		{mem.Float32, mem.Max},
		{mem.Int64, mem.Sum},
	} {
		size, special := c.dt.Size(), kernelstest.Specials[c.dt]
		for count := 2; count <= most; count++ {
			for i, at := range [][2]int{{0, 16}, {3 * size, 0}, {0, size}, {1, 2}} { // how far the first lies, and how much further each of the others
				n := []int{1, 17, len(special) * len(special), 700}[(i+count)%4]
				var dev, host [most + 1]mem.Buffer
				for k, x := range areas {
					data := make([]byte, n*size)
					kernelstest.Fill(r, c.dt, data)
					if n == len(special)*len(special) {
						for e := range n {
							kernelstest.SetElement(size, data, e, special[[2]int{e / len(special), e % len(special)}[k%2]])
						}
					}
					dev[k], host[k] = x.put((at[0]+k*at[1])%64, data)
				}
				dst := []int{0, 1, most}[count%3]
				what := fmt.Sprintf("%v of %d times %d %v at %v, dst %d", c.op, count, n, c.dt, at, dst)
				if err := errors.Join(s.ReduceAll(c.dt, c.op, dev[dst], dev[:count]), s.Synchronize(within)); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				first := host[0]
				for _, b := range host[1:count] {
					if err := cpu.Reduce(c.dt, c.op, host[dst], first, b); err != nil {
						t.Fatal(err)
					}
					first = host[dst]
				}
				check(what, areas[:]...)
			}
		}
	}
	dst, _ := areas[most].put(0, make([]byte, 8))
	a, _ := areas[0].put(0, make([]byte, 8))
	if err := s.Synchronize(within); err != nil {
		t.Fatal(err)
	}
	for _, from := range [][]mem.Buffer{nil, {a}, {a, a, dst}, {a, a.Slice(0, 4)}} {
		if err := s.ReduceAll(mem.Float32, mem.Sum, dst, from); err == nil {
			t.Errorf("%d operands that cannot be are accepted", len(from))
		}
	}
}

// Quotients, of NaN and infinity too.
func TestDivideHasTheBitsOfTheCPU(t *testing.T) {
	cpu, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	d, s := open(t)
	areas := [2]*area{newArea(t, d, s, 4096), newArea(t, d, s, 4096)}
	r := rand.New(rand.NewPCG(2, 13))
	for _, dt := range mem.Datatypes {
		size := dt.Size()
		divisors := []float64{1, 2, 3, 100}
		if dt.Float() {
			divisors = append(divisors, 1.5, 1e-30, 1e30)
		}
		for _, by := range divisors {
			for _, at := range [][2]int{{0, 0}, {size, size + 16}, {size, 2 * size}, {1, 6}} {
				for _, n := range []int{0, 1, 19, 400} {
					var dev, host [2]mem.Buffer
					for k := range areas {
						data := make([]byte, n*size)
						kernelstest.Fill(r, dt, data)
						for e := range min(n, len(kernelstest.Specials[dt])) {
							kernelstest.SetElement(size, data, e, kernelstest.Specials[dt][e])
						}
						dev[k], host[k] = areas[k].put(at[k], data)
					}
					dst := n % 2
					what := fmt.Sprintf("%d %v at %v / %v", n, dt, at, by)
					if err := errors.Join(s.Divide(dt, dev[dst], dev[0], by), s.Synchronize(within), cpu.Divide(dt, host[dst], host[0], by)); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					check(what, areas[:]...)
				}
			}
		}
	}
}

func TestCopy(t *testing.T) {
	d, s := open(t)
	from, to := newArea(t, d, s, 4096), newArea(t, d, s, 4096)
	for _, n := range []int{0, 1, 15, 16, 17, 100, 4000} {
		for _, at := range [][2]int{{0, 0}, {3, 19}, {5, 8}, {64, 1}} {
			data := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, n/7+1)[:n]
			src, _ := from.put(at[0], data)
			dst, host := to.put(at[1], make([]byte, n))
			if err := s.Synchronize(within); err != nil {
				t.Fatal(err)
			}
			copy(mem.Bytes(host), data)
			if err := errors.Join(s.Copy(dst, src), s.Synchronize(within)); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprintf("copy of %d bytes from %d to %d", n, at[0], at[1]), from, to)
		}
	}
}

// updates are the rules on the GPU and on the CPU.
var updates = map[string]struct {
	gpu func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error
	cpu func(o vec.Update, v [4][]float32)
}{
	"SGD": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error { return s.SGD(o, 0.9, v[0], v[1], v[2]) },
		func(o vec.Update, v [4][]float32) { o.SGD(0.9, v[0], v[1], v[2]) },
	},
	"Nesterov": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error { return s.Nesterov(o, 0.9, v[0], v[1], v[2]) },
		func(o vec.Update, v [4][]float32) { o.Nesterov(0.9, v[0], v[1], v[2]) },
	},
	"AdaGrad": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error { return s.AdaGrad(o, 1e-8, v[0], v[1], v[2]) },
		func(o vec.Update, v [4][]float32) { o.AdaGrad(1e-8, v[0], v[1], v[2]) },
	},
	"RMSProp": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error {
			return s.RMSProp(o, 0.98, 1e-8, v[0], v[1], v[2])
		},
		func(o vec.Update, v [4][]float32) { o.RMSProp(0.98, 1e-8, v[0], v[1], v[2]) },
	},
	"AdaDelta": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error {
			return s.AdaDelta(o, 0.95, 1e-6, v[0], v[1], v[2], v[3])
		},
		func(o vec.Update, v [4][]float32) { o.AdaDelta(0.95, 1e-6, v[0], v[1], v[2], v[3]) },
	},
	"Adam": {
		func(s *cuda.Stream, o vec.Update, v [4]mem.Buffer) error {
			return s.Adam(o, 0.9, 0.999, 1e-8, v[0], v[1], v[2], v[3])
		},
		func(o vec.Update, v [4][]float32) { o.Adam(0.9, 0.999, 1e-8, v[0], v[1], v[2], v[3]) },
	},
}

// numbers fills a vector with what training has, and with what it should not: special numbers, and
// histories that are negative.
func numbers(r *rand.Rand, n int) []byte {
	data := make([]byte, 4*n)
	for i := range n {
		x := uint64(math.Float32bits(float32(r.NormFloat64()) / 8))
		switch r.IntN(8) {
		case 0:
			x = kernelstest.Specials[mem.Float32][r.IntN(len(kernelstest.Specials[mem.Float32]))]
		case 1:
			x = uint64(r.Uint32())
		}
		kernelstest.SetElement(4, data, i, x)
	}
	return data
}

func TestUpdatesHaveTheBitsOfTheCPU(t *testing.T) {
	d, s := open(t)
	var areas [4]*area
	for i := range areas {
		areas[i] = newArea(t, d, s, 8192)
	}
	r := rand.New(rand.NewPCG(3, 13))
	for name, rule := range updates {
		for _, l1 := range []bool{false, true} {
			for _, zero := range []bool{false, true} {
				for _, n := range []int{0, 1, 7, 64, 1999} {
					for _, at := range [][4]int{{0, 0, 0, 0}, {4, 20, 36, 4}, {8, 4, 0, 12}} {
						o := vec.Update{Scale: 0.125, Decay: 0.0005, Rate: 0.01, L1: l1, Clear: zero}
						var dev, host [4]mem.Buffer
						var vectors [4][]float32
						for k := range areas {
							dev[k], host[k] = areas[k].put(at[k], numbers(r, n))
							vectors[k] = mem.Float32s(host[k])
						}
						what := fmt.Sprintf("%s of %d at %v, %+v", name, n, at, o)
						if err := errors.Join(rule.gpu(s, o, dev), s.Synchronize(within)); err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						rule.cpu(o, vectors)
						fetch(areas[:]...)
						for k := range areas {
							sameNumbers(t, fmt.Sprintf("%s, vector %d", what, k), mem.Bytes(areas[k].got), mem.Bytes(areas[k].host))
						}
					}
				}
			}
		}
	}
}

// sameNumbers compares bits, but takes a NaN for a NaN: which one an expression
// has depends on the processor.
func sameNumbers(t *testing.T, what string, got, want []byte) {
	t.Helper()
	for i := range len(got) / 4 {
		g, w := uint32(kernelstest.Element(4, got, i)), uint32(kernelstest.Element(4, want, i))
		x, y := math.Float32frombits(g), math.Float32frombits(w)
		if g != w && (x == x || y == y) {
			t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)", what, i, x, g, y, w)
		}
	}
}

// What results depend on is in the code that GPUs get, too: no product fused with a sum, no flushed
// subnormals, no approximations; and lines of 16 bytes.
func TestPTX(t *testing.T) {
	text, err := os.ReadFile("kernels.ptx")
	if err != nil {
		t.Fatal(err)
	}
	seen := exactPTX(t, text)
	for _, op := range []string{"add.rn.f32", "mul.rn.f64", "div.rn.f32", "sqrt.rn.f32", "cvt.rn.f16.f32"} {
		if !seen[op] {
			t.Errorf("no %s: has the text another form than this test reads?", op)
		}
	}
	entries := bytes.Split(text, []byte(".visible .entry "))[1:]
	want := len(mem.Datatypes) + 1 + 6 + 4 // divisions, the copy, updates, sums of several
	for _, dt := range mem.Datatypes {
		for _, op := range mem.OpsOf(dt) {
			if kernels.Alike(dt, op) == dt {
				want++
			}
		}
	}
	if len(entries) != want {
		t.Errorf("%d kernels, not %d", len(entries), want)
	}
	for _, e := range entries {
		if name, _, _ := bytes.Cut(e, []byte("(")); !bytes.Contains(e, []byte("ld.global.v4.u32")) || !bytes.Contains(e, []byte("st.global.v4.u32")) {
			t.Errorf("%s does not go in lines of 16 bytes", name)
		}
	}
}

// Those of layers likewise, but for matrix products, which are fused.
func TestPTXOfLayers(t *testing.T) {
	text, err := os.ReadFile("layers.ptx")
	if err != nil {
		t.Fatal(err)
	}
	const entry = ".visible .entry "
	product := bytes.Index(text, []byte(entry+"product("))
	if product < 0 {
		t.Fatal("no kernel product")
	}
	next := product + len(entry) + bytes.Index(text[product+len(entry):], []byte(entry))
	if n := bytes.Count(text[product:next], []byte("fma.rn.f32")); n != 16 {
		t.Errorf("a product fuses %d times in its loop, want once for each of 16 elements", n)
	}
	exactPTX(t, append(append([]byte{}, text[:product]...), text[next:]...))
}

// exactPTX checks the instructions of a text and returns them.
func exactPTX(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	instruction := regexp.MustCompile(`(?m)^\s+(?:@%\S+\s+)?([a-z]\w*(?:\.\w+)+)`)
	seen := map[string]bool{}
	for _, m := range instruction.FindAllSubmatch(text, -1) {
		seen[string(m[1])] = true
	}
	for op := range seen {
		parts := strings.Split(op, ".")
		float := strings.HasSuffix(op, "f32") || strings.HasSuffix(op, "f64")
		switch {
		case parts[0] == "fma" || parts[0] == "mad" && float || strings.Contains(op, ".ftz") || strings.Contains(op, ".approx") || strings.Contains(op, ".full"):
			t.Errorf("%s rounds otherwise than a CPU", op)
		case float && strings.Contains(" add sub mul div sqrt ", " "+parts[0]+" ") && parts[1] != "rn":
			t.Errorf("%s does not say how it rounds, so a driver may fuse it", op)
		case parts[1] == "local":
			t.Errorf("%s: registers have gone to memory", op)
		}
	}
	return seen
}

// kernels.ptx and layers.ptx are what clang 16 makes of kernels.cu and layers.cu.
func TestPTXIsUpToDate(t *testing.T) {
	if _, err := exec.LookPath("clang-16"); err != nil {
		t.Skip("no clang-16 here (make install-deps installs it)")
	}
	fresh := t.TempDir()
	if out, err := exec.Command("./generate.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"kernels", "layers"} {
		got, err := os.ReadFile(name + ".ptx")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(fresh, name+".ptx"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s.ptx is not what %s.cu gives: go generate ./kernels/cuda", name, name)
		}
	}
}

// Errors name the GPU and what was attempted.
func TestErrors(t *testing.T) {
	d, s := open(t)
	b, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
	}()
	host := mem.Alloc(64)
	defer host.Free()
	opened := func() error { _, err := cuda.Open(1); return err }
	for name, c := range map[string]struct {
		fail string
		try  func() error
		want string
	}{
		"no such GPU":      {"", func() error { _, err := cuda.Open(9); return err }, "cuda: there is no GPU cuda:9: there are 2, from cuda:0 on"},
		"no number":        {"", func() error { _, err := cuda.Open(-1); return err }, "there is no GPU cuda:-1"},
		"PTX rejected":     {"fail=cuModuleLoadDataEx:1:218", opened, "cuda:1 (stand-in 1): open: the driver does not take the kernels: a PTX JIT compilation failed (CUDA_ERROR_INVALID_PTX, 218)"},
		"a kernel missing": {"fail=cuModuleGetFunction:7:500", opened, "cuda:1 (stand-in 1): open: kernel reduce_f64_sum: named symbol not found"},
		"busy":             {"fail=cuDevicePrimaryCtxRetain:1:999", opened, "cuda:1 (stand-in 1): open: unknown error"},
		"prohibited":       {"mode=2", opened, "cuda:1 (stand-in 1): open: its compute mode lets no process use it: nvidia-smi -c DEFAULT"},
		"exclusive":        {"mode=3 fail=cuDevicePrimaryCtxRetain:1:999", opened, "its compute mode is Exclusive_Process, so one other process may have it"},
		"out of memory":    {"", func() error { _, err := d.Alloc(2 << 30); return err }, "cuda:0 (stand-in 0): allocate 2147483648 bytes: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2): 1073741760 bytes of 1073741824 are free"},
		"less than none":   {"", func() error { _, err := d.Alloc(-1); return err }, "allocate: -1 bytes"},
		"a launch":         {"fail=cuLaunchKernel:1:700", func() error { return s.Reduce(mem.Float32, mem.Sum, b, b, b) }, "cuda:0 (stand-in 0): reduce: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)"},
		"the host's":       {"", func() error { return s.Reduce(mem.Float32, mem.Sum, b, host, b) }, "reduce sum of f32: dst, a and b lie in cuda, host and cuda memory: all must be in cuda memory"},
		"the Go heap":      {"", func() error { return s.Copy(b, mem.Of(make([]byte, 64))) }, "lies in the Go heap"},
		"two of the host":  {"", func() error { return s.Copy(host, mem.At(host.Slice(0, 32).Pointer(), 32, mem.Host)) }, "64 and 32 bytes"},
		"over itself":      {"", func() error { return s.Copy(b.Slice(0, 32), b.Slice(16, 32)) }, "partly overlaps"},
		"half a number":    {"", func() error { return s.SGD(vec.Update{}, 0.9, b.Slice(0, 6), b.Slice(16, 6), b.Slice(32, 6)) }, "update by sgd: vector 0 has 6 bytes of 6: want equally many whole elements"},
		"lengths":          {"", func() error { return s.SGD(vec.Update{}, 0.9, b.Slice(0, 16), b.Slice(16, 12), b.Slice(32, 16)) }, "vector 1 has 12 bytes of 16"},
		"no element":       {"", func() error { return s.SGD(vec.Update{}, 0.9, b.Slice(0, 8), b.Slice(17, 8), b.Slice(32, 8)) }, "want addresses of whole elements"},
		"shared":           {"", func() error { return s.SGD(vec.Update{}, 0.9, b.Slice(0, 8), b.Slice(4, 8), b.Slice(32, 8)) }, "vectors overlap"},
		"in time":          {"delay=900000", func() error { return errors.Join(s.Copy(b, host), s.Synchronize(time.Millisecond)) }, "wait for 1ms: " + cuda.ErrDeadline.Error()},
	} {
		if c.fail != "" {
			tell(t, c.fail)
		}
		err := c.try()
		tell(t, asUsual)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := s.Synchronize(within); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	if err := errors.Join(s.Reduce(mem.Float32, mem.Sum, b, b, b), s.Synchronize(within)); err != nil {
		t.Errorf("after errors: %v", err)
	}
}

// A GPU in exclusive mode is that of the process that has it, until that gives it up.
func TestGPUOfAnotherProcess(t *testing.T) {
	open(t)
	other, err := os.Create(filepath.Join(t.TempDir(), "owner"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.FcntlFlock(other.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 1, Len: 1}); err != nil {
		t.Fatal(err)
	}
	tell(t, "mode=3 owner="+other.Name())
	const want = "cuda:1 (stand-in 1): open: CUDA-capable device(s) is/are busy or unavailable (CUDA_ERROR_DEVICE_UNAVAILABLE, 46): its compute mode is Exclusive_Process, so one other process may have it"
	if _, err := cuda.Open(1); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := cuda.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// What is on one stream waits for an event of another, and for nothing else: the sum that does not wait is wrong.
func TestStreamsWaitForEvents(t *testing.T) {
	d, first := open(t)
	second, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	a := newArea(t, d, first, 8*64)
	defer func() {
		if err := errors.Join(e.Close(), second.Synchronize(within), second.Close()); err != nil {
			t.Error(err)
		}
	}()
	both := []bool{true, false}
	if cudatest.Hardware() { // which may be right without a wait, too
		both = both[:1]
	} else {
		tell(t, "delay=300")
	}
	wrong := 0
	for _, wait := range both {
		for range 30 {
			b, host := a.put(0, make([]byte, 8*64))
			if err := first.Synchronize(within); err != nil {
				t.Fatal(err)
			}
			copy(mem.Bytes(host), bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 64))
			err := errors.Join(first.Copy(b, host), first.Record(e))
			if wait {
				err = errors.Join(err, second.Wait(e))
			}
			for range 3 {
				err = errors.Join(err, second.Reduce(mem.Int64, mem.Sum, b, b, b))
			}
			if err := errors.Join(err, first.Synchronize(within), second.Synchronize(within)); err != nil {
				t.Fatal(err)
			}
			if passed, err := e.Passed(); !passed || err != nil {
				t.Fatalf("the event has passed: %v, %v", passed, err)
			}
			fetch(a)
			if got := mem.Bytes(a.got)[0]; got != 8 {
				wrong++
				if wait {
					t.Fatalf("the sum is %d, want 8", got)
				}
			}
		}
	}
	if len(both) > 1 && wrong == 0 {
		t.Error("streams that do not wait are right each time: the stand-in has no delays")
	}
}

// Streams that share a work queue do what they were given one after the other, whichever was given what: as those of a GPU may.
func TestStreamsShareAQueue(t *testing.T) {
	for _, c := range []struct {
		queues int
		behind bool // the second stream is held up by the first
	}{{0, false}, {1, true}, {2, false}} {
		tell(t, fmt.Sprintf("queues=%d", c.queues))
		d, first := open(t)
		second, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		e, err := d.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		a := newArea(t, d, first, 64)
		b, _ := a.put(0, make([]byte, 64))
		if err := first.Synchronize(within); err != nil {
			t.Fatal(err)
		}
		tell(t, "hold=fill")
		err = errors.Join(first.Launch(cuda.Fill, 16, []mem.Buffer{b}, cuda.Number(1)), second.Record(e))
		passed := false
		for begin := time.Now(); err == nil && !passed && time.Since(begin) < within; {
			if passed, err = e.Passed(); c.behind && time.Since(begin) > 100*time.Millisecond {
				break
			}
		}
		tell(t, "hold=none")
		if err := errors.Join(err, first.Synchronize(within), second.Synchronize(within)); err != nil {
			t.Fatal(err)
		}
		if passed == c.behind {
			t.Errorf("%d queues: what is on the second stream was done beside what the first one holds: %v", c.queues, passed)
		}
		if err := errors.Join(e.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	}
}
