package campaign

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/internal/units"
)

// job is something to start: it gives rows for one collective, layout and kind of buffers.
type job struct {
	name       string
	collective string
	layout     Layout
	buffers    string
	sizes      []int
	asked      string             // a row of every size has this; where it is there, the size is done
	env        []string           // in addition
	mpirun     []string           // options of mpirun
	command    func(int) []string // what each rank runs, from a size on
	read       func(j *job, out string) ([]Row, error)
}

func (j *job) String() string {
	what := j.collective
	if j.sizes[0] > 0 {
		what += " of " + units.FormatBytes(j.sizes[0])
		if last := j.sizes[len(j.sizes)-1]; last != j.sizes[0] {
			what += " to " + units.FormatBytes(last)
		}
	}
	return fmt.Sprintf("%v, %s, %s", j.layout, what, j.name)
}

// missing returns the sizes of which there are no rows yet.
func (j *job) missing(rows []Row) (sizes []int) {
	done := map[int]bool{}
	for _, r := range rows {
		if r.Job == j.name && r.Collective == j.collective && r.Nodes == j.layout.Nodes && r.Ranks == j.layout.Ranks() && r.Buffers == j.buffers && r.Asked == j.asked {
			done[r.Size] = true
		}
	}
	for _, s := range j.sizes {
		if !done[s] {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// loop is how long an algorithm is called before it is measured on a node: as the plain C program and UCC's benchmark, each
// then finds in the caches what it has left there. Of more than middleMost bytes a call takes longer than that, and yet leaves in a
// large last cache what others had there: so that it is called once at least, up to some 20 ms of it.
const (
	loop      = time.Millisecond
	largeLoop = 5 * time.Millisecond
)

// osu returns the job of a program of osu-bench.
func (c *campaign) osu(name, collective string, l Layout, buffers string, b band, algorithms ...string) *job {
	return &job{
		name: name, collective: collective, layout: l, buffers: buffers, sizes: b.sizes, asked: algorithms[0], read: readJSON,
		command: func(from int) []string {
			args := []string{filepath.Join(c.bin, "osu_"+collective), "-i", strconv.Itoa(b.often), "-x", strconv.Itoa(max(1, b.often/10)), "--format", "json"}
			if collective != "barrier" {
				last := b.sizes[len(b.sizes)-1]
				args = append(args, "-T", "mpi_float", "-m", fmt.Sprintf("%d:%d", from, last), "-M", strconv.Itoa(max(1<<20, last)),
					"--factor", strconv.Itoa(c.Factor), "--buffers", buffers)
			}
			settle := loop
			switch {
			case l.Nodes > 1:
				settle = labBurst
			case b.sizes[0] > middleMost:
				settle = largeLoop
			}
			args = append(args, "--settle", settle.String())
			if name == regretJob { // choices are for programs, which write what they give
				args = append(args, "--inputs", "written")
			}
			// The lab's nodes are all this machine, whose cores every one of them counts.
			if l.Nodes > 1 && l.Ranks() > host.Cores() {
				args = append(args, "--barrier", "scaffe")
			}
			return append(args, "--algorithm", strings.Join(algorithms, ";"))
		},
	}
}

// floor returns the job of the plain C program.
func (c *campaign) floor(collective string, l Layout, b band) *job {
	return &job{
		name: "floor", collective: collective, layout: l, buffers: "registered", sizes: b.sizes, asked: "floor", read: readJSON,
		command: func(from int) []string {
			return []string{
				filepath.Join(c.bin, "floor"), "-c", collective, "-m", fmt.Sprintf("%d:%d", from, b.sizes[len(b.sizes)-1]),
				"--factor", strconv.Itoa(c.Factor), "-i", strconv.Itoa(b.often), "-x", strconv.Itoa(max(1, b.often/10)), "--format", "json",
			}
		},
	}
}

// ucc returns the job of UCC's own benchmark.
func (c *campaign) ucc(collective string, l Layout, b band) *job {
	return &job{
		name: "ucc", collective: collective, layout: l, buffers: "unregistered", sizes: b.sizes, asked: "ucc", read: readUCC,
		command: func(from int) []string {
			args := []string{c.uccPerftest, "-c", collective, "-d", "float32", "-n", strconv.Itoa(b.often), "-w", strconv.Itoa(max(1, b.often/10)), "-F"}
			if collective == "barrier" {
				return args
			}
			return append(args, "-b", strconv.Itoa(from/4), "-e", strconv.Itoa(b.sizes[len(b.sizes)-1]/4), "-f", strconv.Itoa(c.Factor))
		},
	}
}

// wire returns the jobs that measure the lab's wire: what a few bytes take one way, and
// what a second of many carries.
func (c *campaign) wire(l Layout) []*job {
	two := Layout{l.Nodes, 1}
	pair := func(program string, size int, args ...string) *job {
		return &job{
			name: "wire", collective: program, layout: two, buffers: "registered", sizes: []int{size}, asked: "mpi", read: readJSON,
			command: func(int) []string {
				return append([]string{filepath.Join(c.bin, "osu_"+program), "-m", fmt.Sprintf("%d:%d", size, size), "--algorithm", "mpi", "--format", "json"}, args...)
			},
		}
	}
	return []*job{pair("latency", 4, "-i", "1000"), pair("bw", wireBytes, "-i", "7", "-x", "1", "-W", "16")}
}

const wireBytes = 1 << 20 // of a message by which the wire's bandwidth is measured
