package omb

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scaffe/scaffe/mem"
)

func program(t *testing.T, name string) Program {
	t.Helper()
	p, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// OMB's command lines mean what they mean there.
func TestParse(t *testing.T) {
	float := []Type{{"MPI_FLOAT", mem.Float32}}
	for _, c := range []struct {
		program, line string
		want          func(o *Options)
	}{
		{"osu_reduce", "", func(*Options) {}},
		{"osu_reduce", "-m 1:1024 -f -c", func(o *Options) { o.Max, o.Full, o.Validate = 1024, true, true }},
		{"osu_reduce", "-m 128", func(o *Options) { o.Max = 128 }},
		{"osu_reduce", "-m2:128", func(o *Options) { o.Min, o.Max = 2, 128 }},
		{"osu_reduce", "-m 2:", func(o *Options) { o.Min = 2 }},
		{"osu_reduce", "-m :64", func(o *Options) { o.Max = 64 }},
		{"osu_reduce", "-m 64K:64M -M 1G", func(o *Options) { o.Min, o.Max, o.MemLimit = 64<<10, 64<<20, 1<<30 }},
		{"osu_reduce", "-i 7 -x 0", func(o *Options) {
			o.Iterations, o.IterationsLarge, o.Warmup, o.WarmupLarge = 7, 7, 0, 0
		}},
		{"osu_reduce", "-fci7", func(o *Options) { o.Full, o.Validate, o.Iterations, o.IterationsLarge = true, true, 7, 7 }},
		{"osu_reduce", "-d cuda --buffers unregistered", func(o *Options) { o.CUDA, o.Buffers = true, "cuda" }},
		{"osu_reduce", "-T mpi_float -l -d cpu", func(o *Options) { o.Types, o.InPlace = float, true }},
		{"osu_reduce", "-T MPI_FLOAT -T bf16", func(o *Options) { o.Types = append(float, Type{"bf16", mem.BFloat16}) }},
		{"osu_reduce", "-T all", func(o *Options) { o.Types = mpiTypes }},
		{"osu_reduce", "-k fixed:3", func(o *Options) { o.Root = 3 }},
		{"osu_bcast", "-k rotate", func(o *Options) { o.Root = Rotate }},
		{"osu_bcast", "-z", func(o *Options) { o.Percentiles = []int{50, 90, 99} }},
		{"osu_bcast", "-z5,95 -f", func(o *Options) { o.Percentiles, o.Full = []int{5, 95}, true }},
		{"osu_bcast", "--tail-lat=5", func(o *Options) { o.Percentiles = []int{5} }},
		{"osu_iallreduce", "-t 100 --compute wait --compute-scale 1.5", func(o *Options) {
			o.Tests, o.Compute, o.ComputeScale = 100, "wait", 1.5
		}},
		{"osu_allreduce", "--message-size=8 --iterations 3 --full", func(o *Options) {
			o.Max, o.Iterations, o.IterationsLarge, o.Full = 8, 3, 3, true
		}},
		{"osu_allreduce", "--local 3 --deadline 5s --format csv --buffers heap --barrier scaffe --inputs written --settle 5ms --persistent", func(o *Options) {
			o.Local, o.Deadline, o.Format, o.Buffers, o.Barrier, o.Persistent = 3, 5*time.Second, "csv", "unregistered", "scaffe", true
			o.Settle, o.Inputs = 5*time.Millisecond, "written"
		}},
		{"osu_reduce", "-m 0:4", func(o *Options) { o.Min, o.Max = 1, 4 }},
		{"osu_latency", "-m 0:4", func(o *Options) { o.Min, o.Max, o.Iterations, o.IterationsLarge = 0, 4, 10000, 1000 }},
		{"osu_latency", "", func(o *Options) { o.Min, o.Max, o.Iterations, o.IterationsLarge = 0, 4<<20, 10000, 1000 }},
		{"osu_bw", "-W 3", func(o *Options) {
			o.Max, o.Iterations, o.IterationsLarge, o.Warmup, o.WarmupLarge, o.Window = 4<<20, 100, 20, 10, 2, 3
		}},
		{"osu_reduce", "--algorithm mpi", func(o *Options) { o.Algorithms = []string{"mpi"} }},
		{"osu_reduce", "--algorithm mpi,chain:4,chunk=512K/binomial,ring", func(o *Options) {
			o.Algorithms = []string{"mpi", "chain:4,chunk=512K/binomial", "ring"}
		}},
		{"osu_reduce", "--algorithm mpi;chain,chunk=1M --algorithm tuned", func(o *Options) {
			o.Algorithms = []string{"mpi", "chain,chunk=1M", "tuned"}
		}},
		{"osu_reduce", "-v", func(o *Options) { o.Version, o.Types = true, nil }},
		{"osu_reduce", "-h -m 1", func(o *Options) { o.Help, o.Types, o.Max = true, nil, 1 }},
	} {
		p := program(t, c.program)
		want := defaults(p)
		want.Types = mpiTypes[:1]
		c.want(&want)
		got, err := Parse(p, strings.Fields(c.line))
		if err != nil {
			t.Errorf("%s %s: %v", c.program, c.line, err)
			continue
		}
		if d := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(Options{})); d != "" {
			t.Errorf("%s %s:\n%s", c.program, c.line, d)
		}
	}
}

// An error names the program and the option.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ program, line, says string }{
		{"osu_reduce", "-q", "unknown option -q"},
		{"osu_reduce", "-t 5", "unknown option -t"},
		{"osu_allreduce", "-k rotate", "unknown option -k"},
		{"osu_bcast", "-l", "unknown option -l"},
		{"osu_latency", "-f", "unknown option -f"},
		{"osu_reduce", "--bogus 3", "unknown option --bogus"},
		{"osu_reduce", "--ver", "unknown option --ver"}, // names are not cut short
		{"osu_reduce", "--full=yes", `--full takes no value (got "yes")`},
		{"osu_reduce", "-i", "-i needs N"},
		{"osu_reduce", "--iterations", "--iterations needs N"},
		{"osu_reduce", "-i 0", `invalid -i "0": want a whole number of at least 1`},
		{"osu_reduce", "-x -1", `invalid -x "-1"`},
		{"osu_reduce", "-m big", `invalid -m "big"`},
		{"osu_reduce", "-m 1:2:3", `invalid -m "1:2:3"`},
		{"osu_reduce", "-m -1:2", `invalid -m "-1:2"`},
		{"osu_reduce", "-m :", `invalid -m ":"`},
		{"osu_reduce", "-m 16:8", "the smallest size (16 bytes) is larger than the largest (8 bytes)"},
		{"osu_reduce", "-M 10", `invalid -M "10": want at least 1M`},
		{"osu_reduce", "-T mpi_short", `invalid -T "mpi_short": want all, mpi_char`},
		{"osu_reduce", "-d rocm", `invalid -d "rocm": this memory is not supported: use -d cpu or -d cuda`},
		{"osu_reduce", "-d tpu", `invalid -d "tpu": want cpu or cuda`},
		{"osu_reduce", "--buffers cuda", "want one of registered, unregistered"},
		{"osu_reduce_local", "-d cuda", "invalid -d cuda: this program is about the CPU's kernels"},
		{"osu_reduce", "-k fixed", `invalid -k "fixed": want fixed:RANK or rotate`},
		{"osu_reduce", "-k fixed:x", `invalid -k "fixed:x"`},
		{"osu_reduce", "-z0", `invalid -z "0": want percentiles from 1 to 100`},
		{"osu_reduce", "-z50,101", `invalid -z "50,101"`},
		{"osu_reduce", "-z 50", `unexpected argument "50"`},
		{"osu_reduce", "50", `unexpected argument "50"`},
		{"osu_reduce", "-", `unexpected argument "-"`},
		{"osu_reduce", "-- 50", `unexpected argument "50"`},
		{"osu_reduce", "--algorithm mpi,,chain", "empty spec"},
		{"osu_reduce", "--format xml", "want one of text, csv, json"},
		{"osu_reduce", "--buffers gpu", "want one of registered, unregistered"},
		{"osu_reduce", "--local 0", `invalid --local "0"`},
		{"osu_reduce", "--deadline soon", `invalid --deadline "soon"`},
		{"osu_reduce", "--settle 5", `invalid --settle "5": want a positive time such as 5ms`},
		{"osu_reduce", "--settle 5ms -c", "--settle cannot be used with -c"},
		{"osu_reduce", "--inputs new", "want one of kept, written"},
		{"osu_reduce", "-d cuda --inputs written", "invalid --inputs written"},
		{"osu_barrier", "--inputs written", "unknown option --inputs"},
		{"osu_bw", "--settle 5ms", "unknown option --settle"},
		{"osu_ireduce", "--compute-scale 0", `invalid --compute-scale "0"`},
	} {
		_, err := Parse(program(t, c.program), strings.Fields(c.line))
		if usage := (*UsageError)(nil); !errors.As(err, &usage) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), c.program+": ") {
			t.Errorf("%s %s: got %v, want a UsageError of the program that says %q", c.program, c.line, err, c.says)
		}
	}
}

// -h names every option of a program, and only those.
func TestHelp(t *testing.T) {
	for _, p := range Programs {
		help := p.help()
		for _, o := range allOptions {
			if has := o.kinds&p.kind != 0; has != strings.Contains(help, "--"+o.long) {
				t.Errorf("%s has --%s: %v; its help:\n%s", p.Name, o.long, has, help)
			}
		}
	}
}
