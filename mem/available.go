package mem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Available estimates how many bytes of host memory this process can still
// allocate: what the kernel can free without writing, and the swap space, but no
// more than is left to its control groups. Other processes may take it first.
// It is an error where the system does not say (other systems than Linux).
func Available() (int64, error) { return available(os.DirFS("/")) }

func available(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("mem: available memory is not known: %w", err)
	}
	info := numbers(text, ":")
	free, ok := info["MemAvailable"]
	if !ok {
		return 0, errors.New("mem: available memory is not known: /proc/meminfo has no MemAvailable")
	}
	left := (free + info["SwapFree"]) << 10
	for _, g := range groups(root) {
		left = min(left, g.left(root))
	}
	return max(left, 0), nil
}

// group is a control group, of version 1 or 2, with a limit for memory.
type group struct {
	dir                      string
	limit, usage, reclaiming string // files, and the key of memory.stat
}

// groups returns the control groups of this process, from its own to the root.
func groups(root fs.FS) []group {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var gs []group
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		id, rest, _ := strings.Cut(s.Text(), ":")
		controllers, at, _ := strings.Cut(rest, ":")
		g := group{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
		switch {
		case id == "0" && controllers == "":
		case strings.Contains(","+controllers+",", ",memory,"):
			g = group{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		default:
			continue
		}
		top := g.dir
		for p := path.Clean("/" + at); ; p = path.Dir(p) { // in a container the lower ones may not be visible
			g.dir = path.Join(top, p)
			gs = append(gs, g)
			if p == "/" {
				break
			}
		}
	}
	return gs
}

// left returns what the group may still use: its limit, less what it uses and
// cannot drop.
func (g group) left(root fs.FS) int64 {
	limit, ok := number(root, path.Join(g.dir, g.limit))
	if !ok {
		return math.MaxInt64
	}
	usage, ok := number(root, path.Join(g.dir, g.usage))
	if !ok {
		return math.MaxInt64
	}
	stat, _ := fs.ReadFile(root, path.Join(g.dir, "memory.stat"))
	return limit - usage + numbers(stat, " ")[g.reclaiming]
}

// number reads a file of one number; "max" is none.
func number(root fs.FS, file string) (int64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// numbers reads lines of a name, sep and a number.
func numbers(text []byte, sep string) map[string]int64 {
	out := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), sep)
		if f := strings.Fields(rest); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	return out
}
