package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// mayChangeMode is the environment variable that lets a check set the GPU's compute mode, and set it back.
const mayChangeMode = "SCAFFE_CHECK_EXCLUSIVE"

// mishap is a program that meets what cannot be had, or does what must not be done.
type mishap struct {
	what string
	env  []string
	args []string
	says []string // on stderr
	good bool     // it goes on, with a warning; else what it says is the last thing, and its status is not 0
}

// errors checks mishaps: each is one message.
func (c *Check) errors(ctx context.Context) {
	solver, err := c.solver("small", "", 4, 2)
	if err != nil {
		c.failed("errors", "", err)
		return
	}
	train := func(args ...string) []string {
		return append([]string{c.program("scaffe"), "train", "--solver", solver}, args...)
	}
	for _, x := range []mishap{
		{what: "a GPU that is not there", args: train("--local", "1", "--device", "cuda:99"), says: []string{"there is no GPU cuda:99: there are "}},
		{what: "no driver", env: []string{"SCAFFE_CUDA_LIBRARY=/nonexistent/libcuda.so.1"}, args: train("--local", "1", "--device", "cuda"), says: []string{"no CUDA driver: /nonexistent/libcuda.so.1"}},
		{what: "TF32 without cuBLAS", env: []string{"SCAFFE_CUBLAS_LIBRARY=none"}, args: train("--local", "1", "--device", "cuda", "--math", "tf32"), says: []string{"math tf32 takes cuBLAS, which is missing"}},
		{
			what: "no more memory: asked, free, by whom", args: c.local(2, "osu_reduce", "-d", "cuda", "-m", "900G:900G", "-M", "4000G", "-i", "1", "-x", "0"),
			says: []string{"rank ", fmt.Sprintf("cuda:0 (%s): allocate 966367641600 bytes: ", c.gpu.Name), "CUDA_ERROR_OUT_OF_MEMORY", " are free"},
		},
		{what: "the MPI library's own on the GPU's memory", args: c.local(2, "osu_allreduce", "-d", "cuda", "-m", "4K:4K", "--algorithm", "mpi"), says: []string{"not used on cuda memory"}},
	} {
		c.meet(ctx, x)
	}
	if what := "ranks with different devices"; c.processes(what, "") {
		args := append(append([]string{c.mpi, "-np", "1"}, train("--device", "cuda:0")...), ":", "-np", "1")
		c.meet(ctx, mishap{what: what, args: append(args, train("--device", "cpu")...), says: []string{"1 of 2 ranks are to use GPUs, and the others are not"}})
	}
	c.forbiddenIPC(ctx)
	c.otherProcess(ctx, train("--local", "1", "--device", "cuda:0"))
}

// meet is the line of a mishap.
func (c *Check) meet(ctx context.Context, x mishap) {
	if ctx.Err() != nil {
		return
	}
	r, err := c.command(ctx, 30*time.Second, x.env, x.args...)
	at := "" // what is not said
	for _, s := range x.says {
		if !strings.Contains(r.stderr, s) && at == "" {
			at = s
		}
	}
	switch {
	case ctx.Err() != nil, x.good && err != nil:
		c.failed(x.what, "", err)
	case !x.good && err == nil:
		c.failed(x.what, "", errors.New("it is no error"))
	case err != nil && strings.Contains(oneLine(err), "stopped after"), at != "":
		c.failed(x.what, "", errors.Join(err, fmt.Errorf("want %q", at)))
	default:
		c.add(Row{What: x.what, Result: right, Note: last(r.stderr)})
	}
}

// standIn is how the stand-in is told to be like that, besides.
func standIn(words string) []string {
	return []string{strings.TrimSpace("SCAFFE_STANDIN=" + os.Getenv("SCAFFE_STANDIN") + " " + words)}
}

// forbiddenIPC has two processes that may not open each other's memory: the stand-in can be like that, and a container is or not.
func (c *Check) forbiddenIPC(ctx context.Context) {
	const asked, unasked = "IPC that is forbidden, and asked for", "IPC that is forbidden, and not asked for"
	var env []string
	switch {
	case !c.processes(asked+" or not", ""):
		return
	case c.standIn:
		env = standIn("fail=cuIpcOpenMemHandle_v2:1:201")
	case c.joined != "staging":
		c.skipped(asked+" or not", "", "nothing forbids it here")
		return
	}
	args := c.mpirun(2, "osu_reduce", "-d", "cuda", "-c", "-m", "4K:4K", "-i", "1", "-x", "0")
	c.meet(ctx, mishap{what: asked, env: append(env, "SCAFFE_CUDA_PATH=ipc"), args: args, says: []string{"SCAFFE_CUDA_PATH=ipc cannot serve ranks 0 and 1"}})
	c.meet(ctx, mishap{what: unasked, env: env, args: args, good: true, says: []string{"warning: ranks 0 and 1 cannot read each other's memory on the GPU", "are staged in the host's memory"}})
}

// otherProcess has a GPU in exclusive mode that another process has. To set that mode takes root, and somebody's leave.
func (c *Check) otherProcess(ctx context.Context, args []string) {
	const what = "a GPU in exclusive mode that another process has"
	words, why := []string{"hold"}, ""
	var env []string
	switch {
	case ctx.Err() != nil:
		return
	case c.standIn:
		env = standIn("mode=3 owner=" + filepath.Join(c.Dir, "log", "owner"))
	case c.gpu.Mode == cuda.ExclusiveProcess:
	case os.Getenv(mayChangeMode) == "":
		why = mayChangeMode + " is not set, which lets the check set the GPU's compute mode, and set it back, as root"
	case c.gpu.Mode != cuda.Shared:
		why = fmt.Sprintf("its compute mode is %v", c.gpu.Mode)
	default:
		words, why = append(words, c.gpu.PCIBus), c.inUse(ctx)
	}
	if why != "" {
		c.skipped(what, "", why)
		return
	}
	end, err := c.beside(ctx, env, words...)
	if err != nil {
		c.failed(what, "", err)
		return
	}
	c.meet(ctx, mishap{what: what, env: env, args: args, says: []string{"its compute mode is Exclusive_Process, so one other process may have it"}})
	if _, err := end(); err != nil {
		c.failed("the GPU is given back", "", err)
	}
}
