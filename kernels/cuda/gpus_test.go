//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// asked is set in the processes that ask for GPUs: a process loads a driver once.
const asked = "SCAFFE_TEST_ASK_GPUS"

// library is the stand-in for the driver. This process loads it too.
var library string

// TestMain prints what a process that asks is told, and whether it has loaded the library.
func TestMain(m *testing.M) {
	if os.Getenv(handed) != "" {
		if err := doubleImported(os.Getenv(handed)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(asked) == "" {
		os.Exit(cudatest.Main(m, &library, "devices=2 delay=5"))
	}
	fmt.Printf("loaded before: %v\n", mapped(os.Getenv(cuda.EnvLibrary)))
	all, err := cuda.GPUs()
	fmt.Printf("loaded after: %v\n", mapped(os.Getenv(cuda.EnvLibrary)))
	fmt.Printf("gpus: %+v\nno driver: %v\nerror: %v\n", all, errors.Is(err, cuda.ErrNoDriver), err)
	version, err := cuda.DriverVersion()
	fmt.Printf("version: %q\nversion error: %v\n", version, err)
	_, again := cuda.GPUs()
	fmt.Printf("again: %v\n", again)
	d, err := cuda.Open(0)
	fmt.Printf("open: %v\n", err)
	if err == nil && os.Getenv(askedMath) != "" {
		tellLibraries(d)
	}
}

// mapped reports whether the process has a library loaded.
func mapped(library string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return strings.Contains(string(maps), filepath.Base(library))
}

func ask(t *testing.T, library, like string) string {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asked+"=1", cuda.EnvLibrary+"="+library, cudatest.Env+"="+like)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// A program that starts has loaded no driver; the first question loads it. What is
// wrong with a driver is said, the second time too, and ends nothing.
func TestGPUs(t *testing.T) {
	none := filepath.Join(t.TempDir(), "libcuda.so.1")
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(empty, []byte("no library"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		library, like string
		want          []string
	}{
		"two GPUs": {library, "devices=2 version=12040", []string{
			"loaded before: false", "loaded after: true", "error: <nil>", `version: "12.4"`,
			"{Index:0 Name:stand-in 0 UUID:GPU-10101010-1010-1010-1010-101010101010 PCIBus:0000:3b:00.0 Memory:1073741824 SM:80 Mode:Default}",
			"{Index:1 Name:stand-in 1 UUID:GPU-11111111-1111-1111-1111-111111111111 PCIBus:0000:3c:00.0 Memory:1073741824 SM:80 Mode:Default}",
		}},
		"no GPU":         {library, "devices=0", []string{"gpus: []", "error: <nil>", "open: cuda: this machine has a CUDA driver, and no GPU"}},
		"exclusive":      {library, "mode=3", []string{"Mode:Exclusive_Process"}},
		"no driver":      {none, "", []string{"no driver: true", "error: no CUDA driver: " + none, "version error: no CUDA driver", "again: no CUDA driver"}},
		"not a library":  {empty, "", []string{"no driver: true", "error: no CUDA driver: " + empty}},
		"another's":      {"libm.so.6", "", []string{"no driver: true", "error: no CUDA driver", "cuInit"}},
		"too old":        {library, "version=10020", []string{"no driver: false", "error: the CUDA driver is for CUDA 10.2, and scaffe needs one for 11.0 or later", "again: the CUDA driver is for CUDA 10.2"}},
		"does not start": {library, "fail=cuInit:1:999", []string{"error: the CUDA driver " + library + " (CUDA 13.0) does not start: unknown error (CUDA_ERROR_UNKNOWN, 999)"}},
		"no version":     {library, "fail=cuDriverGetVersion:1:999", []string{"error: the CUDA driver " + library + " does not tell its version: unknown error (CUDA_ERROR_UNKNOWN, 999)"}},
		"no device":      {library, "fail=cuInit:1:100", []string{"gpus: []", "error: <nil>", "version error: a CUDA driver, and no GPU that this process may see", "open: cuda: this machine has a CUDA driver, and no GPU"}},
		"a GPU is lost":  {library, "devices=2 fail=cuDeviceGetPCIBusId:2:999", []string{"gpus: []", "error: cuda: GPU 1: its place on the PCI bus: unknown error (CUDA_ERROR_UNKNOWN, 999)"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := ask(t, c.library, c.like)
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("want %q in\n%s", w, out)
				}
			}
		})
	}
}
