package lending

import (
	"fmt"
	"slices"
	"strings"
)

// Path is how messages of a GPU's memory go from one rank to another.
type Path uint8

const (
	// Staging is through the host's memory, by the transport below.
	Staging Path = iota
	// Pointer is to a rank of the same process, which reads the memory at its address.
	Pointer
	// IPC is to a rank of another process of the node, which opens the memory by a handle, and reads it there.
	IPC
	// MPI is by the MPI library, which is CUDA-aware: the transport below hands it the GPU's memory as it is.
	MPI
)

var pathNames = [...]string{"staging", "pointer", "ipc", "mpi"}

// Lends reports whether the receiver reads the memory where it lies.
func (p Path) Lends() bool { return p == Pointer || p == IPC }

// String returns staging, pointer, ipc or mpi.
func (p Path) String() string {
	if int(p) < len(pathNames) {
		return pathNames[p]
	}
	return fmt.Sprintf("path(%d)", uint8(p))
}

// ParsePath is the inverse of String.
func ParsePath(text string) (Path, error) {
	for i, name := range pathNames {
		if text == name {
			return Path(i), nil
		}
	}
	return 0, fmt.Errorf("unknown path %q: want %s", text, strings.Join(pathNames[:], ", "))
}

// Paths are those between all ranks of a world: Paths[i][j] is that of messages from i to j, and from j to i.
type Paths [][]Path

// NewPaths returns those of n ranks, all of them staging.
func NewPaths(n int) Paths {
	p := make(Paths, n)
	for i := range p {
		p[i] = make([]Path, n)
	}
	return p
}

// Lines says in a few words which ranks are joined by which path. Ranks that have the same paths to all others are a group, and
// have one line: within the group, and to each group after it.
func (p Paths) Lines() []string {
	var groups [][]int
	for r := range p {
		at := slices.IndexFunc(groups, func(g []int) bool { return p.fits(g, r) })
		if at < 0 {
			groups = append(groups, []int{r})
			continue
		}
		groups[at] = append(groups[at], r)
	}
	var lines []string
	for i, g := range groups {
		if len(g) > 1 {
			lines = append(lines, fmt.Sprintf("ranks %s: %v", ranges(g), p[g[0]][g[1]]))
		}
		for _, to := range groups[i+1:] {
			lines = append(lines, fmt.Sprintf("%s with %s: %v", ranks(g), ranks(to), p[g[0]][to[0]]))
		}
	}
	return lines
}

// fits reports whether a rank has one path to all of a group, which is that among them, and the group's paths to all others.
func (p Paths) fits(g []int, r int) bool {
	for i, m := range g {
		if p[m][r] != p[g[0]][r] || i > 0 && p[g[0]][m] != p[g[0]][r] {
			return false
		}
	}
	for other := range p {
		if other != r && !slices.Contains(g, other) && p[g[0]][other] != p[r][other] {
			return false
		}
	}
	return true
}

func ranks(g []int) string {
	if len(g) == 1 {
		return fmt.Sprintf("rank %d", g[0])
	}
	return "ranks " + ranges(g)
}

// ranges writes ascending numbers such as 0-3,5.
func ranges(g []int) string {
	var parts []string
	for i := 0; i < len(g); {
		j := i
		for j+1 < len(g) && g[j+1] == g[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(g[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", g[i], g[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
