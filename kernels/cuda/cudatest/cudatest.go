// Package cudatest is a stand-in for the CUDA driver, and for cuBLAS and cuDNN: a library with their
// functions, which tests load in their place on machines that have none. What it
// shows is that this project's own code asks for the right things and waits for them;
// what a GPU does with them it cannot show.
package cudatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

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
	dir, err := os.MkdirTemp("", "scaffe-cuda")
	if err == nil {
		defer os.RemoveAll(dir)
		if *library, err = Build(dir); err == nil {
			err = errors.Join(os.Setenv(driver.EnvLibrary, *library), os.Setenv(driver.EnvBLAS, driver.NoLibrary), os.Setenv(driver.EnvDNN, driver.NoLibrary), os.Setenv(Env, like))
		}
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

// Build compiles the library into a folder and returns its path, for the
// environment variable cuda.EnvLibrary.
func Build(dir string) (string, error) {
	if Hardware() {
		return "", nil
	}
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("cudatest: no source to compile")
	}
	here = filepath.Dir(here)
	source, library := filepath.Join(here, "src", "standin.c"), filepath.Join(dir, "libcuda-standin.so")
	for _, f := range []string{source, filepath.Join(here, "src", "cublas.c"), filepath.Join(here, "src", "cudnn.c"), filepath.Join(here, "..", "kernels.cu"), filepath.Join(here, "..", "layers.cu"), filepath.Join(here, "..", "grid.h"), filepath.Join(here, "..", "operators.h")} {
		if _, err := os.Stat(f); err != nil { // go test looks again where a file has changed that the test has looked at
			return "", fmt.Errorf("cudatest: its source: %w", err)
		}
	}
	c := exec.Command("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
		"-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-o", library, source)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cudatest: %v: %w\n%s", c, err, out)
	}
	return library, nil
}
