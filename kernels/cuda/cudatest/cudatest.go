// Package cudatest is a stand-in for the CUDA driver, and for cuBLAS and cuDNN: a library with their
// functions, which tests load in their place on machines that have none. What it
// shows is that this project's own code asks for the right things and waits for them;
// what a GPU does with them it cannot show.
package cudatest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
)

// Env is the environment variable that says what the driver is like; see
// src/standin.c.
const Env = "SCAFFE_STANDIN"

// EnvHardware is the environment variable that has tests use the driver, and the libraries, that there are: those that compare results hold
// on a GPU, too. Tests that tell the stand-in what to be like are left out.
const EnvHardware = "SCAFFE_TEST_HARDWARE"

// Hardware reports whether tests use what there is.
func Hardware() bool { return os.Getenv(EnvHardware) != "" }

// Main runs a package's tests with the library in the driver's place, whose path it stores in library, and which is
// like the words say (Env), and without cuBLAS and cuDNN. It returns what the process is to end with.
func Main(m interface{ Run() int }, library *string, like string) int {
	if Hardware() {
		return m.Run()
	}
	var err error
	if *library, err = Build(); err == nil {
		err = errors.Join(os.Setenv(driver.EnvLibrary, *library), os.Setenv(driver.EnvBLAS, driver.NoLibrary), os.Setenv(driver.EnvDNN, driver.NoLibrary), os.Setenv(Env, like))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Load has this process load the library in the driver's place and, where a test names it in their variables, in those of cuBLAS
// and cuDNN, which are left alone otherwise. The file is not needed any more.
func Load(library string) error {
	if Hardware() {
		return driver.Open()
	}
	err := errors.Join(os.Setenv(driver.EnvLibrary, library), os.Setenv(driver.EnvBLAS, library), os.Setenv(driver.EnvDNN, library), driver.Open())
	_, blas := driver.FindBLAS()
	_, dnn := driver.FindDNN()
	return errors.Join(err, blas, dnn, os.Setenv(driver.EnvBLAS, driver.NoLibrary), os.Setenv(driver.EnvDNN, driver.NoLibrary))
}

// sources are the files that the library is made of, below kernels/cuda.
var sources = []string{
	"cudatest/src/standin.c", "cudatest/src/cublas.c", "cudatest/src/cudnn.c",
	"kernels.cu", "layers.cu", "grid.h", "operators.h",
}

// Build returns the path of the library, for the environment variable cuda.EnvLibrary. What it compiles
// stays in the user's cache folder, or else that of temporary files, for all who ask later, in a folder named after the sources and
// what the compiler makes of its options here.
func Build() (string, error) {
	if Hardware() {
		return "", nil
	}
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("cudatest: no source to compile")
	}
	root := filepath.Join(filepath.Dir(here), "..")
	sum := sha256.New()
	for _, f := range sources {
		b, err := os.ReadFile(filepath.Join(root, f)) // go test runs a test again that has read a file which changed
		if err != nil {
			return "", fmt.Errorf("cudatest: its source: %w", err)
		}
		sum.Write(b)
	}
	options := []string{
		"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
		"-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
	}
	fmt.Fprintln(sum, options)
	says, err := cc(append(options, "-v", "-E", "-x", "c", os.DevNull)...)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(says)) { // its version, and what native is
		if strings.Contains(line, "version") || strings.Contains(line, "cc1") {
			sum.Write([]byte(line))
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	kept := filepath.Join(cache, "scaffe", fmt.Sprintf("standin-%x", sum.Sum(nil)[:8]))
	library := filepath.Join(kept, "libcuda-standin.so")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	if err := os.MkdirAll(kept, 0o777); err != nil {
		return "", err
	}
	made, err := os.CreateTemp(kept, "made")
	if err != nil {
		return "", err
	}
	defer os.Remove(made.Name())
	if err := made.Close(); err != nil {
		return "", err
	}
	if _, err := cc(append(options, "-o", made.Name(), filepath.Join(root, sources[0]))...); err != nil {
		return "", err
	}
	return library, os.Rename(made.Name(), library) // whole, also for who looks now
}

// cc runs the compiler and returns what it prints.
func cc(args ...string) ([]byte, error) {
	c := exec.Command("cc", args...)
	out, err := c.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cudatest: %v: %w\n%s", c, err, out)
	}
	return out, nil
}
